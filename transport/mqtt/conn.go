package mqtt

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	// minRead and maxRead are the sizes of the read buffer with little and with much incoming
	// traffic.
	minRead, maxRead = 64, 4 << 10
	// highWater is how many bytes may be pending before the session stops publishing.
	highWater = 32 << 10
	// maxWriteThrough is the largest packet that is written through: it fits into the network's
	// buffers when they are otherwise empty.
	maxWriteThrough = 8 << 10
	// flushSize is how many bytes are collected before a write while more messages are announced. With
	// one more message of up to 2 KB the result still is one chunk and one TLS record.
	flushSize = 14 << 10
	// writeChunk is the most bytes in one write, so that keepAlive sees progress on a slow link.
	writeChunk = 16 << 10
	// keepBuffer is the largest write buffer that is returned to the pool; a window of ordinary
	// messages fits.
	keepBuffer = 64 << 10
	// drainTime bounds how long pending bytes are written after DISCONNECT.
	drainTime = 500 * time.Millisecond
	// reasonTime bounds the wait for the hub's reason when CONNECT could not be written.
	reasonTime = 250 * time.Millisecond
)

// conn is the connection that the MQTT library gets. It sits above the tunnel, TLS and the socket.
//
// Reads are buffered and checked by a framer. Writes append to a buffer and do not block. The
// flusher, a goroutine, is the only writer to the socket. It writes all pending bytes in one call,
// with a deadline, so it detects a peer that stops reading. There is at most one flusher. It starts
// when a write is due and ends when none is; small writes wait while more messages are announced.
// The exception is a message that is alone in flight: the goroutine that calls Write becomes the
// flusher and writes it to the socket itself.
//
// The first failure is kept and closes the socket; from then on Read and Write return it. Its text
// never contains that of net.ErrClosed, which the library ignores because it takes it for its own
// doing.
//
// An idle connection has no flusher, and buffers of a few bytes.
type conn struct {
	net.Conn                 // tunnel, TLS or the socket; only conn calls its Read and Write
	socket   net.Conn        // the lowest layer
	control  <-chan struct{} // signals that the tunnel has replies to write; not nil: the flusher stays
	wake     chan struct{}   // capacity 1: wakes a flusher that keeps running
	// open is closed when the session may call its sink; before that only the CONNACK is read.
	open chan struct{}
	// dead is closed by the first failure.
	dead chan struct{}
	// flushed is closed by the last flusher, after a failure or Close.
	flushed chan struct{}
	sent    func(tag uint16) // called by the flusher for each message with QoS 0 that it has written

	// Owned by the reading goroutine.
	frames       framer
	connackBytes int    // bytes read before the CONNACK was whole
	lastReadSize int    // bytes of the latest read
	ready        []byte // passed the framer and not yet read; a slice of smallBuf or largeBuf
	smallBuf     [minRead]byte
	largeBuf     *[maxRead]byte // nil unless there is much incoming traffic
	readErr      error

	mu      sync.Mutex // guards the fields below; never held during I/O
	pending *writeBuf  // nil: no pending bytes
	// capacity 1: signals the session that the flusher took pending; nil until the session first waits
	spaceFreed     chan struct{}
	flushing       bool          // a flusher or a stand-in for it exists, or the last one ended
	expected       []publication // one for each PUBLISH that the library holds
	announced      int           // announced messages that are not written yet
	unacked        int           // messages written and not acknowledged
	written        wire.Tags     // their tags
	singleInFlight bool          // one message is announced, and none is unacknowledged
	beat           heartbeat
	err            error     // the first failure
	closing        bool      // Close was called
	disconnectSent bool      // DISCONNECT was written: Close sends what is pending
	drainDeadline  time.Time // the deadline of that; set by Close
}

// Pools of the buffers that connections use only while there is traffic.
var (
	readBufs  = sync.Pool{New: func() any { return new([maxRead]byte) }}
	writeBufs = sync.Pool{New: func() any { return new(writeBuf) }}
)

type writeBuf struct {
	b          []byte
	atMostOnce []uint16 // tags of the messages in b with QoS 0
}

// free returns the buffer to the pool, unless it is large.
func (w *writeBuf) free() {
	if cap(w.b) <= keepBuffer {
		w.b, w.atMostOnce = w.b[:0], w.atMostOnce[:0]
		writeBufs.Put(w)
	}
}

var (
	errClosed  = errors.New("the connection was closed on this side")
	errDropped = errors.New("the library dropped the connection")
	errAborted = errors.New("the connection was given up")
	// errUnannounced: without a publication the packet's message is unknown, so it must not be sent.
	errUnannounced = errors.New("the library wrote a message that it was not given")
	// errManySubs: the next packet ids belong to messages. The library starts again at 1 on the next
	// connection.
	errManySubs = errors.New("this connection has used up its ids for subscriptions")
)

// newConn returns a connection that must be ended by Close or fail. socket is the lowest layer of
// outer; the two are the same without TLS and tunnel.
func newConn(outer, socket net.Conn, sink frameSink) *conn {
	c := &conn{
		Conn: outer, socket: socket,
		open: make(chan struct{}), dead: make(chan struct{}), flushed: make(chan struct{}),
	}
	c.frames.sink = sink
	if o, ok := outer.(netopt.ControlWriter); ok {
		// replies that are pending before CONNECT are written with it
		c.control, c.wake = o.ControlPending(), make(chan struct{}, 1)
	}
	return c
}

// Read is called by one goroutine at a time. After the CONNACK it waits for open.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(c.ready) == 0 {
		if c.readErr != nil {
			return 0, c.readErr
		}
		c.readErr = c.fill()
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

// start lets the session's packets pass. The caller calls it once at a time.
func (c *conn) start() {
	select {
	case <-c.open:
	default:
		close(c.open)
	}
}

// fill reads once and checks the bytes. Packets before a fault still pass, except PUBACKs, which
// the library never gets.
func (c *conn) fill() error {
	buf := c.readBuf()
	if !c.frames.connected {
		buf = buf[:max(1, 4-c.connackBytes)] // a CONNACK has 4 bytes
	} else {
		select {
		case <-c.open:
		case <-c.dead:
		}
	}
	n, err := c.Conn.Read(buf)
	c.lastReadSize = n
	c.connackBytes += n
	if n > 0 {
		c.mu.Lock()
		c.beat.received(time.Now())
		c.mu.Unlock()
	}
	var frameErr error
	c.ready, frameErr = c.frames.scan(buf[:n])
	switch {
	case frameErr != nil:
		return c.fail(frameErr)
	case err == io.EOF: //nolint:errorlint // of the socket itself
		return c.fail(errHubClosed{})
	case err != nil:
		return c.fail(err)
	}
	return nil
}

// readBuf returns the buffer for the next read, a large one after a read that filled minRead.
func (c *conn) readBuf() []byte {
	large := c.lastReadSize >= minRead
	switch {
	case large && c.largeBuf == nil:
		c.largeBuf = readBufs.Get().(*[maxRead]byte)
	case !large && c.largeBuf != nil:
		readBufs.Put(c.largeBuf)
		c.largeBuf = nil
	}
	if large {
		return c.largeBuf[:]
	}
	return c.smallBuf[:]
}

// Write appends p to the pending bytes, or writes it through when it is a PUBLISH alone in flight.
// It is safe for concurrent use.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.mu.Lock()
	if c.endedLocked() {
		err := c.err
		c.mu.Unlock()
		if err == nil {
			err = errClosed
		}
		return 0, err
	}
	var pub publication
	through := false
	switch p[0] >> 4 {
	case typePublish:
		var ok bool
		if pub, ok = c.takeExpectedLocked(); !ok {
			c.mu.Unlock()
			return 0, c.fail(errUnannounced)
		}
		if pub.isMessage() {
			c.announced--
			through = c.singleInFlight && !c.flushing && c.pending == nil && len(p) <= maxWriteThrough
		}
		if pub.id > issueID {
			c.unacked++
			c.written.Add(tagOf(pub.id))
		}
	case typeDisconnect:
		c.disconnectSent, c.announced = true, 0
	}
	c.appendLocked(p, pub)
	if p[0]>>4 == typeConnect {
		setKeepAlive(c.pending.b, c.beat.keepAlive)
	}
	if through {
		out := c.becomeFlusherLocked()
		c.mu.Unlock()
		return len(p), c.writeThrough(out)
	}
	if c.writeDueLocked() {
		c.wakeFlusherLocked()
	}
	c.mu.Unlock()
	return len(p), nil
}

// endedLocked reports that nothing may be written: the connection failed or was closed, or the last
// packet, DISCONNECT, was written [MQTT-3.14.4-2].
func (c *conn) endedLocked() bool { return c.err != nil || c.closing || c.disconnectSent }

// appendLocked appends a packet to the pending bytes.
func (c *conn) appendLocked(packet []byte, pub publication) {
	if c.pending == nil {
		c.pending = writeBufs.Get().(*writeBuf)
	}
	begin := len(c.pending.b)
	c.pending.b = pub.appendTo(c.pending.b, packet)
	if packet[0]>>4 == typeSubscribe {
		_, n := binary.Uvarint(packet[1:]) // the remaining length has the same form
		id := c.pending.b[begin+1+n:]
		id[0], id[1] = id[0]^subIDMask[0], id[1]^subIDMask[1]
	}
	if pub.atMostOnce {
		c.pending.atMostOnce = append(c.pending.atMostOnce, pub.tag)
	}
}

// keepAlive sends a ping when one is due, fails the connection if a ping was not answered, and
// returns when to call it again.
func (c *conn) keepAlive() time.Duration {
	progress := dialer.Progress(c.socket)
	c.mu.Lock()
	c.beat.progressed(progress)
	wait, ping, silent := c.beat.check(time.Now())
	if ping && !c.endedLocked() {
		// under one lock: a flusher that becomes idle in between would start pingTimeout before the ping
		// is pending
		c.appendLocked([]byte{typePingreq << 4, 0}, publication{})
		if c.writeDueLocked() {
			c.wakeFlusherLocked()
		}
	}
	c.mu.Unlock()
	if silent {
		c.fail(errNoPong)
	}
	return wait
}

// pong notes the answer to a ping.
func (c *conn) pong() {
	c.mu.Lock()
	c.beat.received(time.Now())
	c.mu.Unlock()
}

// waitForSpace waits until fewer than highWater bytes are pending, and returns the difference; 0
// when the connection is dead or stop was closed first.
func (c *conn) waitForSpace(stop <-chan struct{}) int {
	for {
		c.mu.Lock()
		dead := c.endedLocked()
		free := highWater
		if c.pending != nil {
			free -= len(c.pending.b)
		}
		if free <= 0 && c.spaceFreed == nil {
			c.spaceFreed = make(chan struct{}, 1)
		}
		spaceFreed := c.spaceFreed
		c.mu.Unlock()
		if dead {
			return 0
		}
		if free > 0 {
			return free
		}
		select {
		case <-spaceFreed:
		case <-c.dead:
			return 0
		case <-stop:
			return 0
		}
	}
}

// Close ends the connection and returns at once; it may be called again and concurrently. After a
// DISCONNECT, pending bytes up to and including it are written for at most drainTime; without one
// nothing more is sent.
func (c *conn) Close() error {
	c.mu.Lock()
	first, abort := !c.closing, !c.disconnectSent
	c.closing = true
	if first && !abort && c.err == nil {
		c.drainDeadline = time.Now().Add(drainTime)
		_ = c.socket.SetWriteDeadline(c.drainDeadline) // shortens a write in progress
	}
	c.wakeFlusherLocked()
	c.mu.Unlock()
	if abort {
		c.fail(errDropped)
	}
	return nil
}

// fail records the first failure and closes the socket, which unblocks reads and writes. It returns
// the first failure.
func (c *conn) fail(err error) error {
	if errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), net.ErrClosed.Error()) {
		err = errClosed
	}
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.dead)
		c.wakeFlusherLocked()
	}
	err = c.err
	c.mu.Unlock()
	if first {
		_ = c.socket.Close()
	}
	return err
}

// failure returns the first failure, nil as long as there is none.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// The library's deadlines are ignored: the dial's context bounds the handshake, the flusher bounds
// writes.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// notify puts a token into ch, of capacity 1, unless it is full.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
