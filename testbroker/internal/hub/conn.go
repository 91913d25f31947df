package hub

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
)

// CloseLimit is how long a client has to read the last packet and close, after the hub has said
// all it will say.
const CloseLimit = time.Second

// The modes of a connection. It only moves downwards.
const (
	Open     = iota
	Silent   // half-open: what comes is thrown away, what goes vanishes, and no deadline ends it
	Draining // the last word is said: what comes is thrown away until the client closes
	Over
)

// Conn is the hub's end of a connection, between the network and the broker. Faults act here, on
// bytes.
type Conn struct {
	Stream net.Conn // what the protocol is spoken on: raw, or TLS, or a WebSocket over it. Set before the first packet.
	Under  net.Conn // what TLS is spoken on: raw, or what a front has put on it
	port   port
	Raw    net.Conn // a *socket or *memconn.Conn; neither ever waits in Write
	Hub    *Hub
	Number uint64
	Closed chan struct{} // closed when the connection is over; hooks that wait also wait for it
	Done   chan struct{} // closed when the goroutine of the connection is about to end

	Mode atomic.Int32 // changes under mu

	mu    sync.Mutex // guards what follows, and the mode against deadlines
	cause error      // why the hub ended it

	// Written under Hub.mu by the connection's goroutine, which reads id also without it.
	ID   Identity // what the client reports that it is, whether or not it is true
	Live bool     // established and not ended
	Peer Peer     // nil until a protocol has begun

	// Of the connection's own goroutine.
	TLS     *tls.Conn // nil without TLS
	pending *Injected // a fault of the handshake that is still to happen
}

var _ net.Conn = (*Conn)(nil)

// Read gives the bytes of the client to the front while the connection is in order, and throws them
// away when it is not.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Stream.Read(p)
		if c.Mode.Load() == Open {
			return n, err
		}
		if err != nil {
			return 0, err
		}
	}
}

// Write sends bytes, or lets them vanish.
func (c *Conn) Write(p []byte) (int, error) {
	switch c.Mode.Load() {
	case Open:
		n, err := c.Stream.Write(p)
		if errors.Is(err, ErrSlowReader) {
			c.CutFor(ErrSlowReader)
		}
		return n, err
	case Over:
		return 0, net.ErrClosed
	}
	return len(p), nil
}

// Close ends the connection in order: the client can read what was sent, then sees the end.
func (c *Conn) Close() error {
	if c.Leave(Over) == Open {
		return c.Stream.Close()
	}
	return c.Raw.Close()
}

// CloseFor is Close with a reason.
func (c *Conn) CloseFor(cause error) {
	c.SetCause(cause)
	c.Close()
}

// CutFor ends the connection by RST.
func (c *Conn) CutFor(cause error) {
	c.SetCause(cause)
	c.Leave(Over)
	abort(c.Raw)
}

// abort resets a connection of any kind: bytes on the way are lost.
func abort(raw net.Conn) {
	switch raw := raw.(type) {
	case *memconn.Conn:
		raw.Reset()
	case *net.TCPConn:
		raw.SetLinger(0)
	case *Socket:
		raw.abort()
	}
	raw.Close()
}

// Silence makes the connection half-open for good; false if it was not in order anyway.
func (c *Conn) Silence() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Mode.Load() != Open {
		return false
	}
	c.Mode.Store(Silent)
	c.Raw.SetDeadline(time.Time{})
	return true
}

// CloseGracefully ends the hub's side so that the client can read all that was sent, even if it is
// still sending itself: to close a TCP connection with unread bytes would reset it. The client has
// a second to close.
func (c *Conn) CloseGracefully(cause error) {
	c.SetCause(cause)
	c.mu.Lock()
	if c.Mode.Load() != Open {
		c.mu.Unlock()
		return
	}
	c.Mode.Store(Draining)
	c.Raw.SetDeadline(time.Now().Add(CloseLimit))
	c.mu.Unlock()
	if s, ok := c.Stream.(interface{ CloseWrite() error }); ok && c.Stream != c.Raw {
		s.CloseWrite()
	}
	if s, ok := c.Raw.(interface{ CloseWrite() error }); ok {
		s.CloseWrite()
	}
}

// Drain waits until the connection ends. Only the connection's goroutine may call it, when the mode
// is not open.
func (c *Conn) Drain() {
	var p [512]byte
	for {
		if _, err := c.Read(p[:]); err != nil {
			return
		}
	}
}

// Leave moves to a mode further down and returns the mode before.
func (c *Conn) Leave(mode int32) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.Mode.Load()
	if before < mode {
		c.Mode.Store(mode)
		if mode == Over {
			close(c.Closed)
		}
	}
	return before
}

// matchesLocked reports whether a selector means the connection. Hub.mu is held.
func (c *Conn) matchesLocked(selector string) bool {
	switch {
	case selector == "":
		return true
	case c.Peer != nil:
		return c.Peer.MatchesLocked(selector)
	}
	return c.ID.Matches(selector)
}

// SetCause keeps the first reason why the hub ended the connection.
func (c *Conn) SetCause(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
}

func (c *Conn) causeOr(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return c.cause
	}
	return err
}

// SetDeadline does what the broker wants as long as the connection is in order.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Mode.Load() != Open {
		return nil
	}
	return c.Raw.SetDeadline(t)
}

// LimitRead is SetDeadline for reading alone.
func (c *Conn) LimitRead(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Mode.Load() != Open {
		return nil
	}
	return c.Raw.SetReadDeadline(t)
}

// SetReadDeadline is part of net.Conn; the broker does not call it.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.Raw.SetReadDeadline(t) }

// SetWriteDeadline is part of net.Conn; the broker does not call it.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.Raw.SetWriteDeadline(t) }

// LocalAddr is the hub's address.
func (c *Conn) LocalAddr() net.Addr { return c.Raw.LocalAddr() }

// RemoteAddr is the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.Raw.RemoteAddr() }

// Sleep waits; false when the connection ended meanwhile.
func (c *Conn) Sleep(d time.Duration) bool {
	if d <= 0 {
		return c.Mode.Load() != Over
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.Closed:
		return false
	}
}
