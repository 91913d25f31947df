package testbroker

import (
	"crypto/tls"
	"errors"
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
	stream net.Conn // what the protocol is spoken on: raw, or TLS, or a WebSocket over it. Set before the first packet.
	under  net.Conn // what TLS is spoken on: raw, or what a front has put on it
	port   port
	raw    net.Conn // a *socket or *memconn.Conn; neither ever waits in Write
	hub    *Hub
	number uint64
	closed chan struct{} // closed when the connection is over; hooks that wait also wait for it
	done   chan struct{} // closed when the goroutine of the connection is about to end

	mode atomic.Int32 // changes under mu

	mu    sync.Mutex // guards what follows, and the mode against deadlines
	cause error      // why the hub ended it

	// Written under Hub.mu by the connection's goroutine, which reads id also without it.
	id   identity // what the client says that it is, whether or not it is true
	live bool     // established and not ended
	peer peer     // nil until a protocol has begun

	// Of the connection's own goroutine.
	tls     *tls.Conn // nil without TLS
	pending *Injected // a fault of the handshake that is still to happen
}

var _ net.Conn = (*conn)(nil)

// Read gives the bytes of the client to the front while the connection is in order, and throws them
// away when it is not.
func (c *conn) Read(p []byte) (int, error) {
	for {
		n, err := c.stream.Read(p)
		if c.mode.Load() == open {
			return n, err
		}
		if err != nil {
			return 0, err
		}
	}
}

// Write sends bytes, or lets them vanish.
func (c *conn) Write(p []byte) (int, error) {
	switch c.mode.Load() {
	case open:
		n, err := c.stream.Write(p)
		if errors.Is(err, ErrSlowReader) {
			c.cutFor(ErrSlowReader)
		}
		return n, err
	case over:
		return 0, net.ErrClosed
	}
	return len(p), nil
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

// matchesLocked reports whether a selector means the connection. Hub.mu is held.
func (c *conn) matchesLocked(selector string) bool {
	switch {
	case selector == "":
		return true
	case c.peer != nil:
		return c.peer.matchesLocked(selector)
	}
	return c.id.matches(selector)
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

// sleep waits; false when the connection ended meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	if d <= 0 {
		return c.mode.Load() != over
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}
