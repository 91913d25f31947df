package mqtt

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	readBuffer = 4 << 10
	// highWater is how many bytes may wait for the flusher before the session stops publishing.
	highWater = 64 << 10
	// writeChunk is written under one deadline, so that a slow link is told from a dead one.
	writeChunk = 16 << 10
	// keepBuffer is the largest write buffer that is used again; a window of ordinary messages fits.
	keepBuffer = 32 << 10
	// drainTime bounds what is still written after DISCONNECT.
	drainTime = 500 * time.Millisecond
	// lastWordsTime is how long the hub's reason is waited for when CONNECT could not be written.
	lastWordsTime = 250 * time.Millisecond
)

// conn is the connection that the MQTT library is given. Under it lie the tunnel and TLS, if any, and the socket.
//
// Reads are buffered and checked by a framer. Writes only append to a buffer and never block: a goroutine of its own, the flusher, is the sole
// writer to the socket. It sends all that has come together in one go, with a deadline, so a peer that stops reading is found whoever
// wrote. The first failure is kept; it closes the socket, and from then on Read and Write return it. Its text never is that of net.ErrClosed, which the
// library takes for its own doing and does not report.
type conn struct {
	net.Conn                 // tunnel, TLS or the socket; its Read and Write are not called from outside
	socket   net.Conn        // the lowest
	owed     <-chan struct{} // the tunnel has something to write, nil: never
	timeout  time.Duration
	// open is closed when the session may report to its sink; until then only the CONNACK is read.
	open chan struct{}
	// dead is closed by the first failure, and by Close.
	dead chan struct{}
	// flushed is closed by the flusher's end.
	flushed chan struct{}
	// wake (capacity 1) tells the flusher that something changed, room (capacity 1) the session that the flusher took the buffer.
	wake, room chan struct{}

	// Of the reading goroutine. buf[r:v] passed the framer and was not read yet.
	frames   framer
	greeting int // bytes read before the CONNACK was whole
	buf      []byte
	r, v     int
	readErr  error

	mu      sync.Mutex // guards what follows; held for memory only
	pending []byte
	err     error     // the first failure
	closing bool      // Close was called
	goodbye bool      // DISCONNECT was written: Close lets it out
	drainBy time.Time // when closing
}

var (
	errClosed  = errors.New("the connection was closed on this side")
	errDropped = errors.New("the library dropped the connection")
	errAborted = errors.New("the connection was given up")
)

// newConn starts the flusher, which ends after Close or fail. socket is what lies under outer; they are the same without TLS and tunnel.
func newConn(outer, socket net.Conn, timeout time.Duration, sink frameSink) *conn {
	c := &conn{
		Conn: outer, socket: socket, timeout: timeout,
		open: make(chan struct{}), dead: make(chan struct{}), flushed: make(chan struct{}),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		buf: make([]byte, readBuffer),
	}
	if o, ok := outer.(owing); ok {
		c.owed = o.Owed()
	}
	c.frames.sink = sink
	go c.flush()
	return c
}

// Read is called by one goroutine at a time. After the CONNACK it waits for open.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for c.r == c.v {
		if c.readErr != nil {
			return 0, c.readErr
		}
		c.readErr = c.fill()
	}
	n := copy(p, c.buf[c.r:c.v])
	c.r += n
	return n, nil
}

// fill reads once and checks what came. What is good before a fault is still handed out.
func (c *conn) fill() error {
	room := len(c.buf)
	if !c.frames.connected {
		room = max(1, 4-c.greeting) // a CONNACK has 4 bytes
	} else {
		select {
		case <-c.open:
		case <-c.dead:
		}
	}
	n, err := c.Conn.Read(c.buf[:room])
	c.greeting += n
	good, frameErr := c.frames.scan(c.buf[:n])
	c.r, c.v = 0, good
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

// Write appends p to what the flusher sends. It never blocks and is safe for concurrent use.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.err != nil || c.closing {
		err := c.err
		c.mu.Unlock()
		if err == nil {
			err = errClosed
		}
		return 0, err
	}
	if len(p) > 0 && p[0]>>4 == typeDisconnect {
		c.goodbye = true
	}
	wasEmpty := len(c.pending) == 0
	c.pending = append(c.pending, p...)
	c.mu.Unlock()
	if wasEmpty {
		poke(c.wake)
	}
	return len(p), nil
}

// waitRoom returns true when less than highWater waits to be written, false when the connection is dead or stop was closed first.
func (c *conn) waitRoom(stop <-chan struct{}) bool {
	for {
		c.mu.Lock()
		waiting, dead := len(c.pending), c.err != nil || c.closing
		c.mu.Unlock()
		if dead {
			return false
		}
		if waiting < highWater {
			return true
		}
		select {
		case <-c.room:
		case <-c.dead:
			return false
		case <-stop:
			return false
		}
	}
}

// Close ends the connection and returns at once; it may be called again and concurrently. What was written before a DISCONNECT, and the DISCONNECT, are
// sent for drainTime at most; without one nothing more is sent.
func (c *conn) Close() error {
	c.mu.Lock()
	first, abort := !c.closing, !c.goodbye
	c.closing = true
	if first && !abort && c.err == nil {
		c.drainBy = time.Now().Add(drainTime)
		_ = c.socket.SetWriteDeadline(c.drainBy) // shortens a write under way
	}
	c.mu.Unlock()
	if abort {
		c.fail(errDropped)
	} else {
		poke(c.wake)
	}
	return nil
}

// fail records the first failure and closes the socket, which frees whoever is inside it. It returns the first failure.
func (c *conn) fail(err error) error {
	if errors.Is(err, net.ErrClosed) || strings.Contains(err.Error(), net.ErrClosed.Error()) {
		err = errClosed
	}
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.dead)
	}
	err = c.err
	c.mu.Unlock()
	if first {
		_ = c.socket.Close()
		poke(c.wake)
	}
	return err
}

// failure returns the first failure, nil as long as there is none.
func (c *conn) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// flush is the flusher: the only goroutine that writes to the socket. It ends when the connection failed, or was closed and all is written.
func (c *conn) flush() {
	defer close(c.flushed)
	var out []byte
	for {
		c.mu.Lock()
		out, c.pending = c.pending, out[:0]
		failed, closing := c.err != nil, c.closing
		c.mu.Unlock()
		switch {
		case failed:
			return
		case len(out) > 0:
			poke(c.room)
			if err := c.send(out); err != nil {
				c.lastWords()
				c.fail(&writeError{err})
				return
			}
			if cap(out) > keepBuffer {
				out = nil
			}
		case closing:
			c.hangUp()
			return
		default:
			_ = c.socket.SetWriteDeadline(time.Time{}) // TLS also writes when it reads
			select {
			case <-c.wake:
				runtime.Gosched() // let more come together: a quarter more throughput, and nothing lost on an idle machine
			case <-c.owed:
				if err := c.send(nil); err != nil {
					c.fail(&writeError{err})
					return
				}
			}
		}
	}
}

// lastWords waits a moment for the reading goroutine to learn why the hub hung up on CONNECT. With TLS 1.3 a client certificate is refused after the
// handshake, and the write may fail before the alert was read.
func (c *conn) lastWords() {
	select {
	case <-c.open:
		return
	default:
	}
	t := time.NewTimer(lastWordsTime)
	defer t.Stop()
	select {
	case <-c.dead:
	case <-t.C:
	}
}

// send writes p in chunks, each with the deadline anew. An empty p is for a tunnel that owes something.
func (c *conn) send(p []byte) error {
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), writeChunk)
		c.mu.Lock()
		deadline := c.drainBy
		if deadline.IsZero() {
			deadline = time.Now().Add(c.timeout)
		}
		_ = c.socket.SetWriteDeadline(deadline)
		c.mu.Unlock()
		if _, err := c.Conn.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// hangUp closes after an orderly goodbye. TLS says its own goodbye, for which it would wait 5 s.
func (c *conn) hangUp() {
	if c.Conn != c.socket {
		c.mu.Lock()
		rest := time.Until(c.drainBy)
		c.mu.Unlock()
		t := time.AfterFunc(rest, func() { _ = c.socket.Close() })
		_ = c.Conn.Close()
		t.Stop()
	}
	c.fail(errClosed)
}

// The library's deadlines are not used: the handshake is bounded by the dial's context, writes by the flusher.

func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// errHubClosed is io.EOF said more clearly.
type errHubClosed struct{}

func (errHubClosed) Error() string { return "the hub closed the connection" }
func (errHubClosed) Unwrap() error { return io.EOF }

// A writeError is a failure of the flusher.
type writeError struct{ err error }

func (e *writeError) Error() string {
	if errors.Is(e.err, os.ErrDeadlineExceeded) {
		return "the hub takes no data: " + e.err.Error()
	}
	return e.err.Error()
}

func (e *writeError) Unwrap() error { return e.err }

// poke makes a token available in ch, of capacity 1.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
