package paho

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// maxIncoming is the largest body of a packet from the peer. The largest ones from a hub carry the
// JSON of a method or twin. A larger PUBLISH is skipped.
const maxIncoming = 1 << 20

// bodySize is the least and the most bytes in the body of a packet from the peer, by packet type.
// Types with max below min are refused. A SUBACK has one code, because each SUBSCRIBE has one
// filter: paho indexes its filters by the number of codes. Some hubs send DISCONNECT before they
// close, though 3.1.1 allows it to clients only.
var bodySize = [16]struct{ min, max int }{
	0: never, 1: never, 5: never, 6: never, 7: never, 8: never, 10: never, 11: never, 12: never, 15: never,
	mqttwire.Connack:    {2, 2},
	mqttwire.Publish:    {3, maxIncoming},
	mqttwire.Puback:     {2, 2},
	mqttwire.Suback:     {3, 3},
	mqttwire.Pingresp:   {0, 0},
	mqttwire.Disconnect: {0, 0},
}

var never = struct{ min, max int }{1, 0}

// conn is a connection of mqtt.Dialer. Cut closes the socket at once; Close must still be called.
type conn interface {
	net.Conn
	transport.Progressor
	engine.Explainer
	engine.Expirer
	Cut()
}

// guard is the connection that paho gets. It reads whole packets and passes on those that paho
// survives: paho allocates a packet's announced length at once, and takes unknown return codes for
// success. It keeps the first failure of the connection, which paho does not always report.
type guard struct {
	conn
	closing sync.Once
	closed  chan struct{} // by Close
	// pingTimeout is paho's.
	pingTimeout time.Duration
	// progress is transport.Config.Progress.
	progress  func()
	receiving mqttwire.Receiving

	// Owned by the reading goroutine.
	r         *bufio.Reader
	connected bool // the first packet, a CONNACK, was read
	packet    []byte
	unread    []byte // of packet
	passed    uint64 // number of PUBLISHes that paho got

	// writing is held during a write by putting a value into it, because paho's pings come from a
	// goroutine of their own; capacity 1.
	writing chan struct{}

	mu      sync.Mutex    // guards the fields below; never held during I/O
	err     error         // the first failure
	written mqttwire.Tags // the ids of PUBLISHes that were given to the network and not acknowledged
	// unackedBytes are those of all messages written since the last moment without one in written, up
	// to MaxMessageSize.
	unackedBytes int
	pinged       bool // a ping was written and not answered
	skips        []skip
}

// skip is a PUBLISH of size bytes that was skipped. paho has its head, as PUBLISH number n.
type skip struct {
	n    uint64
	size int
}

func newGuard(c conn, pingTimeout time.Duration) *guard {
	g := &guard{conn: c, closed: make(chan struct{}), writing: make(chan struct{}, 1), pingTimeout: pingTimeout}
	g.r = bufio.NewReader(socket{g})
	return g
}

// socket reads the guard's connection.
type socket struct{ g *guard }

func (s socket) Read(p []byte) (int, error) {
	n, err := s.g.conn.Read(p)
	s.g.receiving.Add(n)
	s.g.receiving.Report(s.g.progress)
	return n, err
}

// Read is called by one goroutine.
func (g *guard) Read(p []byte) (int, error) {
	for len(g.unread) == 0 {
		if err := g.next(); err != nil {
			return 0, g.fail(err)
		}
	}
	n := copy(p, g.unread)
	g.unread = g.unread[n:]
	return n, nil
}

// next reads and checks a packet. A PUBACK for no message leaves nothing unread.
func (g *guard) next() error {
	g.packet = g.packet[:0]
	var h mqttwire.Header
	for whole := false; !whole; {
		b, err := g.r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return mqttwire.HubClosed{}
		case err != nil:
			return err
		}
		g.packet = append(g.packet, b)
		if h, whole, err = mqttwire.Next(g.packet); err != nil {
			return mqttwire.Violation{Err: err}
		}
	}
	g.receiving.Begin(h.Size+h.Body, h.Size+g.r.Buffered())
	if h.Type == mqttwire.Publish && h.Body > maxIncoming && g.connected {
		return g.skip(h)
	}
	if h.Type == mqttwire.Connack && h.Body > 2 && !g.connected {
		code, _ := g.r.Peek(2)
		return mqttwire.FirstBytes(append(g.packet, code...))
	}
	if size := bodySize[h.Type]; h.Body < size.min || h.Body > size.max {
		return mqttwire.NewViolation("the hub sent a packet of type " + strconv.Itoa(int(h.Type)) + " with " +
			strconv.Itoa(h.Body) + " bytes")
	}
	g.packet = append(g.packet, make([]byte, h.Body)...)
	body := g.packet[h.Size:]
	if _, err := io.ReadFull(g.r, body); err != nil {
		return err
	}
	pass, err := g.check(h, body)
	if err != nil {
		return err
	}
	if pass {
		g.unread = g.packet
		if h.Type == mqttwire.Publish {
			g.passed++
		}
	}
	if cap(g.packet) > keptPacket {
		g.packet = nil
	}
	return nil
}

// skip reads a PUBLISH without keeping it: a broker would send it again on the next connection.
// paho gets its head, so that it stays in the order of the messages.
func (g *guard) skip(h mqttwire.Header) error {
	head := make([]byte, mqttwire.MaxHead)
	if _, err := io.ReadFull(g.r, head); err != nil {
		return err
	}
	if _, err := g.check(h, head); err != nil {
		return err
	}
	if _, err := g.r.Discard(h.Body - len(head)); err != nil {
		return err
	}
	in, _ := mqttwire.ReadPublish(h.Flags, head)
	head = head[:len(head)-len(in.Body)]
	g.passed++
	g.mu.Lock()
	g.skips = append(g.skips, skip{g.passed, h.Size + h.Body})
	g.mu.Unlock()
	g.unread = append(mqttwire.AppendHeader(nil, mqttwire.Publish, h.Flags, len(head)), head...)
	return nil
}

// skipped returns the size of PUBLISH number n if it was skipped, else 0. It is called in order.
func (g *guard) skipped(n uint64) (size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.skips) > 0 && g.skips[0].n == n {
		size = g.skips[0].size
		g.skips = g.skips[1:]
	}
	return size
}

// Progress implements transport.Progressor. Bytes of large packets are progress, too.
func (g *guard) Progress() (at time.Time, waits bool) {
	at, waits = g.conn.Progress()
	return g.receiving.Progress(at), waits
}

// keptPacket is the largest buffer that is kept for the next packet.
const keptPacket = 4 << 10

func (g *guard) check(h mqttwire.Header, body []byte) (pass bool, err error) {
	if g.connected == (h.Type == mqttwire.Connack) {
		return false, mqttwire.NewViolation("the hub's first packet is not its only CONNACK") // [MQTT-3.2.0-1]
	}
	switch h.Type {
	case mqttwire.Connack:
		var code byte
		if _, code, err = mqttwire.ReadConnack(body); err == nil && code != 0 {
			return false, &mqttwire.ConnackError{Code: code}
		}
		g.connected = true
	case mqttwire.Publish:
		var in mqttwire.Incoming
		if in, err = mqttwire.ReadPublish(h.Flags, body); err == nil && in.QoS > 1 {
			return false, mqttwire.NewViolation("the hub sent a PUBLISH with a QoS above 1, which was not requested")
		}
	case mqttwire.Puback:
		var id uint16
		if id, err = mqttwire.ReadID(body); err == nil && !g.acknowledge(id) {
			return false, nil // acknowledged before, or never sent
		}
	case mqttwire.Pingresp:
		g.mu.Lock()
		g.pinged = false
		g.mu.Unlock()
	case mqttwire.Suback:
		var id uint16
		if id, _, err = mqttwire.ReadSuback(body); err == nil && g.acknowledge(id) { // paho would report it as done
			return false, mqttwire.NewViolation("the hub answered a PUBLISH with SUBACK")
		}
	default: // the others have no body
	}
	if err != nil {
		return false, mqttwire.Violation{Err: err}
	}
	return true, nil
}

// acknowledge reports whether a PUBLISH with this id was written. Before that paho may still read
// the message, which belongs to the caller again once it is acknowledged.
func (g *guard) acknowledge(id uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ours := g.written.Remove(id)
	if ours && g.written.Empty() {
		g.unackedBytes = 0
	}
	return ours
}

// Write writes one packet. It is safe for concurrent use.
func (g *guard) Write(p []byte) (int, error) {
	ping := len(p) > 0 && mqttwire.Type(p[0]>>4) == mqttwire.Pingreq
	if ping {
		g.mu.Lock()
		g.pinged = true
		g.mu.Unlock()
	}
	n, err := g.write(p)
	if err == nil && ping {
		g.awaitAnswer()
	}
	return n, err
}

// awaitAnswer waits until a ping is answered, or until the link made no progress for a PingTimeout
// and a slow hop behind it had time for the messages that were not acknowledged, up to the size of
// one. Only then begins the time for the answer, which paho counts from the end of Write.
func (g *guard) awaitAnswer() {
	g.mu.Lock()
	until := time.Now().Add(times.Transfer(g.unackedBytes))
	g.mu.Unlock()
	for {
		select {
		case <-g.closed:
			return
		case <-time.After(g.pingTimeout / 8):
		}
		g.mu.Lock()
		answered := !g.pinged
		g.mu.Unlock()
		last, waits := g.Progress()
		now := time.Now()
		if answered || now.Sub(last) >= g.pingTimeout && (waits || !now.Before(until)) {
			return
		}
	}
}

func (g *guard) write(p []byte) (int, error) {
	g.writing <- struct{}{}
	defer func() { <-g.writing }()
	if h, whole, err := mqttwire.Next(p); err == nil && whole && h.Type == mqttwire.Publish {
		if out, err := mqttwire.ReadPublish(h.Flags, p[h.Size:]); err == nil && out.QoS > 0 {
			g.mu.Lock()
			g.written.Add(out.ID)
			g.unackedBytes = min(g.unackedBytes+len(p), transport.MaxMessageSize)
			g.mu.Unlock()
		}
	}
	n, err := g.conn.Write(p)
	if err != nil {
		err = g.fail(err)
	}
	return n, err
}

// errClosed replaces net.ErrClosed, which paho takes for its own doing and does not report.
var errClosed = errors.New("the connection was closed on this side")

// fail records the first failure, closes the socket, and returns that failure.
func (g *guard) fail(err error) error {
	if errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), net.ErrClosed.Error()) {
		err = errClosed
	}
	g.mu.Lock()
	first := g.err == nil
	if first {
		g.err = err
	}
	err = g.err
	g.mu.Unlock()
	if first {
		g.Cut()
	}
	return err
}

// failure returns the first failure, nil as long as there is none.
func (g *guard) failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Close is called by paho, which may call it more than once.
func (g *guard) Close() error {
	g.mu.Lock()
	if g.err == nil {
		g.err = mqttwire.ErrNoPong // paho closes a sound connection for that alone, and after DISCONNECT
	}
	g.mu.Unlock()
	g.closing.Do(func() {
		close(g.closed)
		_ = g.conn.Close()
	})
	return nil
}

// paho's deadlines are ignored: the dial's context bounds the handshake, the socket bounds writes.

func (*guard) SetDeadline(time.Time) error      { return nil }
func (*guard) SetReadDeadline(time.Time) error  { return nil }
func (*guard) SetWriteDeadline(time.Time) error { return nil }
