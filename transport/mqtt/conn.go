package mqtt

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	// idleRead is the read buffer of a line on which little comes, busyRead that of another.
	idleRead, busyRead = 64, 4 << 10
	// highWater is how many bytes may wait for the flusher before the session stops publishing.
	highWater = 32 << 10
	// maxAlone is the largest packet that is written through: it fits into the network's buffers when
	// nothing else is in them.
	maxAlone = 8 << 10
	// fullWrite is how many bytes are put together before they are written while more are on their
	// way: with a message of up to 2 KB more it still is one chunk, and one record of TLS.
	fullWrite = 14 << 10
	// writeChunk is written at a time, so that keepAlive knows that the link gets on.
	writeChunk = 16 << 10
	// keepBuffer is the largest write buffer that is pooled; a window of ordinary messages fits.
	keepBuffer = 64 << 10
	// drainTime bounds what is still written after DISCONNECT.
	drainTime = 500 * time.Millisecond
	// reasonTime bounds the wait for the hub's reason when CONNECT could not be written.
	reasonTime = 250 * time.Millisecond
)

// conn is the connection that the MQTT library gets. It sits above the tunnel, TLS and the socket.
//
// Reads are buffered and checked by a framer. Writes append to a buffer and do not block. The
// flusher, a goroutine, is the only writer to the socket. It writes all pending bytes in one call,
// with a deadline, so it detects a peer that stops reading, whoever wrote. There is at most one
// flusher. It starts when bytes are due and ends when none are; small writes wait while more
// messages are announced. The exception is a message that is alone in flight: its writer becomes
// the flusher and writes it to the socket itself.
//
// The first failure is kept and closes the socket; from then on Read and Write return it. Its text
// is never that of net.ErrClosed, which the library ignores as caused by itself.
//
// An idle connection has no flusher, and buffers of a few bytes.
type conn struct {
	net.Conn                 // tunnel, TLS or the socket; its Read and Write are not called from outside
	socket   net.Conn        // the lowest
	control  <-chan struct{} // the tunnel has replies to write; nil: never. Otherwise the flusher stays
	wake     chan struct{}   // capacity 1: tells a flusher that stays that something changed
	// open is closed when the session may report to its sink; until then only the CONNACK is read.
	open chan struct{}
	// dead is closed by the first failure.
	dead chan struct{}
	// flushed is closed by the last flusher, after a failure or Close.
	flushed chan struct{}

	// Of the reading goroutine.
	frames   framer
	greeting int    // bytes read before the CONNACK was whole
	got      int    // bytes of the latest read
	ready    []byte // passed the framer and was not read yet; in few or many
	few      [idleRead]byte
	many     *[busyRead]byte // nil unless much comes
	readErr  error

	mu      sync.Mutex // guards what follows; held for memory only
	pending *writeBuf  // nil: nothing waits to be written
	// capacity 1: tells the session that the flusher took pending; nil until the session waits for
	// that
	room     chan struct{}
	flushing bool          // there is a flusher or who stands in for it, or there was the last one
	expected []publication // of the PUBLISH packets that the library has
	coming   int           // so many messages are on their way through the library
	unacked  int           // so many messages were written and not acknowledged
	alone    bool          // one is coming, and none is unacknowledged
	beat     heartbeat
	err      error     // the first failure
	closing  bool      // Close was called
	goodbye  bool      // DISCONNECT was written: Close lets it out
	drainBy  time.Time // when closing
}

// Buffers that are in use while something moves.
var (
	readBufs  = sync.Pool{New: func() any { return new([busyRead]byte) }}
	writeBufs = sync.Pool{New: func() any { return new(writeBuf) }}
)

type writeBuf struct{ b []byte }

// free gives the buffer back, unless it is large.
func (w *writeBuf) free() {
	if cap(w.b) <= keepBuffer {
		w.b = w.b[:0]
		writeBufs.Put(w)
	}
}

var (
	errClosed  = errors.New("the connection was closed on this side")
	errDropped = errors.New("the library dropped the connection")
	errAborted = errors.New("the connection was given up")
	// errUnannounced: nobody knows whose message it is, so it must not go out as anybody's.
	errUnannounced = errors.New("the library wrote a message that it was not given")
	// errManySubs: the ids behind are those of messages. On the next connection the library counts
	// anew.
	errManySubs = errors.New("this connection has used up its ids for subscriptions")
)

// newConn returns a connection that must be ended by Close or fail. socket is what lies under
// outer; they are the same without TLS and tunnel.
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

// fill reads once and checks what came. What is good before a fault is still handed out, but for
// the PUBACKs: the library has nothing for which they are answers.
func (c *conn) fill() error {
	buf := c.readBuf()
	if !c.frames.connected {
		buf = buf[:max(1, 4-c.greeting)] // a CONNACK has 4 bytes
	} else {
		select {
		case <-c.open:
		case <-c.dead:
		}
	}
	n, err := c.Conn.Read(buf)
	c.got = n
	c.greeting += n
	if n > 0 {
		c.mu.Lock()
		c.beat.hear(time.Now())
		c.mu.Unlock()
	}
	var frameErr error
	c.ready, frameErr = c.frames.scan(buf[:n])
	switch {
	case frameErr != nil:
		return c.fail(frameErr)
	case err == io.EOF:
		return c.fail(errHubClosed{})
	case err != nil:
		return c.fail(err)
	}
	return nil
}

// readBuf returns the buffer for the next read: a large one as long as much comes.
func (c *conn) readBuf() []byte {
	busy := c.got >= idleRead
	switch {
	case busy && c.many == nil:
		c.many = readBufs.Get().(*[busyRead]byte)
	case !busy && c.many != nil:
		readBufs.Put(c.many)
		c.many = nil
	}
	if busy {
		return c.many[:]
	}
	return c.few[:]
}

// Write appends p to what the flusher sends, or writes it through when it is a lone PUBLISH. It is
// safe for concurrent use.
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
		if pub.id != 0 {
			c.coming--
			c.unacked++
			through = c.alone && !c.flushing && c.pending == nil && len(p) <= maxAlone
		}
	case typeDisconnect:
		c.goodbye, c.coming = true, 0
	}
	c.appendLocked(p, pub)
	if p[0]>>4 == typeConnect {
		setKeepAlive(c.pending.b, c.beat.every)
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
func (c *conn) endedLocked() bool { return c.err != nil || c.closing || c.goodbye }

// appendLocked appends a packet to the pending bytes.
func (c *conn) appendLocked(packet []byte, pub publication) {
	if c.pending == nil {
		c.pending = writeBufs.Get().(*writeBuf)
	}
	c.pending.b = pub.appendTo(c.pending.b, packet)
}

// keepAlive pings if it is time to, or fails if nothing came after a ping, and returns when to call
// it again.
func (c *conn) keepAlive() time.Duration {
	progress := dialer.Progress(c.socket)
	c.mu.Lock()
	c.beat.gotOn(progress)
	wait, ping, silent := c.beat.look(time.Now())
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
	c.beat.hear(time.Now())
	c.mu.Unlock()
}

// waitRoom waits until less than highWater waits to be written, and returns how much less; 0 when
// the connection is dead or stop was closed first.
func (c *conn) waitRoom(stop <-chan struct{}) int {
	for {
		c.mu.Lock()
		dead := c.endedLocked()
		free := highWater
		if c.pending != nil {
			free -= len(c.pending.b)
		}
		if free <= 0 && c.room == nil {
			c.room = make(chan struct{}, 1)
		}
		room := c.room
		c.mu.Unlock()
		if dead {
			return 0
		}
		if free > 0 {
			return free
		}
		select {
		case <-room:
		case <-c.dead:
			return 0
		case <-stop:
			return 0
		}
	}
}

// Close ends the connection and returns at once; it may be called again and concurrently. What was
// written before a DISCONNECT, and the DISCONNECT, are sent for drainTime at most; without one
// nothing more is sent.
func (c *conn) Close() error {
	c.mu.Lock()
	first, abort := !c.closing, !c.goodbye
	c.closing = true
	if first && !abort && c.err == nil {
		c.drainBy = time.Now().Add(drainTime)
		_ = c.socket.SetWriteDeadline(c.drainBy) // shortens a write under way
	}
	c.wakeFlusherLocked()
	c.mu.Unlock()
	if abort {
		c.fail(errDropped)
	}
	return nil
}

// fail records the first failure and closes the socket, which frees whoever is inside it. It
// returns the first failure.
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

// The library's deadlines are not used: the handshake is bounded by the dial's context, writes by
// the flusher.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// poke makes a token available in ch, of capacity 1.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
