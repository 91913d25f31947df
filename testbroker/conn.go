package testbroker

import (
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
)

// farewellLimit is how long a client has to read the last packet and close, after the hub has said
// all it will say.
const farewellLimit = time.Second

// The modes of a connection. It only moves downwards.
const (
	open     = iota
	silent   // half-open: what comes is thrown away, what goes vanishes, and no deadline ends it
	draining // the last word is said: what comes is thrown away until the client closes
	over
)

// conn is the hub's end of a connection, between the network and the broker. Faults act here, on
// bytes.
type conn struct {
	stream net.Conn // what MQTT or AMQP is spoken on: raw, or TLS, or a WebSocket over it. Set before the first packet.
	port   port
	raw    net.Conn // a *socket or *memconn.Conn; neither ever waits in Write
	hub    *Hub
	number uint64
	closed chan struct{} // closed when the connection is over; hooks that wait also wait for it
	done   chan struct{} // closed when the goroutine of the connection is about to end

	mode atomic.Int32 // changes under mu

	mu    sync.Mutex // guards what follows, and the mode against deadlines
	cause error      // why the hub ended it

	acks ackQueue // PUBACKs that wait for their time

	// Written under Hub.mu by the connection's goroutine, which reads id also without it.
	id   identity  // what the CONNECT says, whether or not it is true
	live bool      // accepted by CONNACK, or opened, and not ended
	amqp *amqpConn // nil unless AMQP is spoken, and has begun
	http *httpConn // nil unless HTTP is spoken, and the connection is no WebSocket yet

	// the filters that let something through, with their QoS; nil before the CONNACK. Guarded by
	// Hub.mu.
	heard map[string]byte

	// Of the connection's own goroutine.
	known    bool        // a CONNECT was read
	answered bool        // and refused by CONNACK
	parted   bool        // a DISCONNECT was read
	session  *session    // from the CONNECT on
	tls      *tls.Conn   // nil without TLS
	cable    *cable      // between raw and HTTP or its TLS; nil where there is no HTTP
	pending  *Injected   // a fault of the handshake that is still to happen
	present  bool        // it was kept from an earlier connection
	spent    *Injected   // a quota that closes the connection as soon as it is accepted
	will     *Message    // to be logged when the client vanishes
	until    time.Time   // when its token ends; zero = it has none
	expiry   *time.Timer // ends the connection then
	framer   framer      // where the packets begin
	tear     *Injected   // a fault that cuts the connection inside the packet being read
}

var _ net.Conn = (*conn)(nil)

// Read gives bytes to the broker while the connection is in order, and throws them away when it is
// not.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if c.framer.torn {
			c.hub.happened(c.tear, c)
			c.cutFor(faultError(DropDuringPublish))
			c.tear, c.framer.torn = nil, false
		}
		n, err := c.stream.Read(p)
		if c.mode.Load() != open {
			if err != nil {
				return 0, err
			}
			continue
		}
		if c.port.amqp {
			return n, err
		}
		if n = c.framer.scan(p[:n], c.begins); n > 0 || err != nil {
			return n, err
		}
	}
}

// begins is told of the first byte of each packet and says whether the connection is to be cut
// inside it.
func (c *conn) begins(first byte) bool {
	if first>>4 != packetPublish {
		return false
	}
	c.tear = c.hub.faults.take(DropDuringPublish, c.id)
	return c.tear != nil
}

// Write sends bytes of the broker, or lets them vanish.
func (c *conn) Write(p []byte) (int, error) {
	switch c.mode.Load() {
	case open:
		put := c.stream.Write
		if !c.port.amqp && len(p) > 0 && (p[0]>>4 == packetConnack || p[0]>>4 == packetSuback) {
			put = c.hear
		}
		n, err := put(p)
		if errors.Is(err, ErrSlowReader) {
			c.cutFor(ErrSlowReader)
		}
		return n, err
	case over:
		return 0, net.ErrClosed
	}
	return len(p), nil
}

// hear sends a CONNACK or a SUBACK, and from then on what the session says gets through. Who has
// the packet can count on that, and has nothing before it.
func (c *conn) hear(p []byte) (int, error) {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if c.session != nil && c.spent == nil {
		c.heard = maps.Clone(c.session.filters)
	}
	return c.stream.Write(p)
}

// Close ends the connection in order: the client can read what was sent, then sees the end.
func (c *conn) Close() error {
	if c.leave(over) == open {
		return c.stream.Close()
	}
	return c.raw.Close()
}

// closeFor is Close with a reason.
func (c *conn) closeFor(cause error) {
	c.blame(cause)
	c.Close()
}

// expire ends the connection with its token. A client at the other end of a dead link would not
// learn of it.
func (c *conn) expire() {
	if c.mode.Load() != silent {
		c.closeFor(ErrTokenExpired)
	}
}

// cutFor ends the connection by RST.
func (c *conn) cutFor(cause error) {
	c.blame(cause)
	c.leave(over)
	abort(c.raw)
}

// abort resets a connection of any kind: bytes on the way are lost.
func abort(raw net.Conn) {
	switch raw := raw.(type) {
	case *memconn.Conn:
		raw.Reset()
	case *net.TCPConn:
		raw.SetLinger(0)
	case *socket:
		raw.abort()
	}
	raw.Close()
}

// silence makes the connection half-open for good; false if it was not in order anyway.
func (c *conn) silence() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode.Load() != open {
		return false
	}
	c.mode.Store(silent)
	c.raw.SetDeadline(time.Time{})
	return true
}

// farewell ends the hub's side so that the client can read all that was sent, even if it is still
// sending itself: to close a TCP connection with unread bytes would reset it. The client has a
// second to close.
func (c *conn) farewell(cause error) {
	c.blame(cause)
	c.mu.Lock()
	if c.mode.Load() != open {
		c.mu.Unlock()
		return
	}
	c.mode.Store(draining)
	c.raw.SetDeadline(time.Now().Add(farewellLimit))
	c.mu.Unlock()
	if s, ok := c.stream.(interface{ CloseWrite() error }); ok && c.stream != c.raw {
		s.CloseWrite()
	}
	if s, ok := c.raw.(interface{ CloseWrite() error }); ok {
		s.CloseWrite()
	}
}

// drain waits until the connection ends. Only the connection's goroutine may call it, when the mode
// is not open.
func (c *conn) drain() {
	var p [512]byte
	for {
		if _, err := c.Read(p[:]); err != nil {
			return
		}
	}
}

// leave moves to a mode further down and returns the mode before.
func (c *conn) leave(mode int32) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.mode.Load()
	if before < mode {
		c.mode.Store(mode)
		if mode == over {
			close(c.closed)
		}
	}
	return before
}

// matchesLocked says whether a selector means the connection. Hub.mu is held.
func (c *conn) matchesLocked(selector string) bool {
	who := map[identity]struct{}{c.id: {}}
	switch {
	case selector == "":
		return true
	case c.amqp != nil:
		who = c.amqp.who
	case c.http != nil:
		who = c.http.who
	}
	for id := range who {
		if id.matches(selector) {
			return true
		}
	}
	return false
}

// blame keeps the first reason why the hub ended the connection.
func (c *conn) blame(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
}

func (c *conn) causeOr(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return err
}

// SetDeadline does what the broker wants as long as the connection is in order.
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode.Load() != open {
		return nil
	}
	return c.raw.SetDeadline(t)
}

// setReadDeadline is SetDeadline for reading alone.
func (c *conn) setReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mode.Load() != open {
		return nil
	}
	return c.raw.SetReadDeadline(t)
}

// SetReadDeadline is part of net.Conn; the broker does not call it.
func (c *conn) SetReadDeadline(t time.Time) error { return c.raw.SetReadDeadline(t) }

// SetWriteDeadline is part of net.Conn; the broker does not call it.
func (c *conn) SetWriteDeadline(t time.Time) error { return c.raw.SetWriteDeadline(t) }

// LocalAddr is the hub's address.
func (c *conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// RemoteAddr is the client's address.
func (c *conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }
