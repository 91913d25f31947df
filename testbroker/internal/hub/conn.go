package hub

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// CloseLimit is how long a client may take to read the last packet and close, after the hub has
// sent everything.
const CloseLimit = time.Second

// The modes of a connection. A connection only moves down the list.
const (
	Open     = iota
	Silent   // half-open: input is discarded, output is dropped, and no deadline ends the connection
	Draining // the last packet is sent: input is discarded until the client closes
	Over
)

// Conn is the hub's end of a connection, between the network and the broker. Faults act here, on
// bytes.
type Conn struct {
	Stream net.Conn // carries the protocol: raw, or TLS, or a WebSocket over either. Set before the first packet.
	Under  net.Conn // carries TLS: raw, or a front's wrapper of it
	stack  Stack
	Raw    net.Conn // a *Socket or *memconn.Conn; Write of neither ever blocks
	Hub    *Hub
	Number uint64
	Closed chan struct{} // closed when the connection ends; hooks that wait also wait for it
	Done   chan struct{} // closed just before the connection's goroutine ends

	Mode atomic.Int32 // changes under mu

	greeted atomic.Bool // the client has begun a TLS handshake
	heard   atomic.Bool // the client has sent something of its protocol

	mu    sync.Mutex // guards the fields below, and the order of mode changes and deadlines
	cause error      // why the hub ended the connection

	// Written under Hub.mu by the connection's goroutine, which also reads id without it.
	ID     identity.Identity // the identity that the client states, verified or not
	live   bool              // established and not ended
	peer   Peer              // nil until a protocol has begun
	speaks hubdata.Protocol  // the present one: HTTP until a WebSocket begins

	candidates []string // guarded by Hub.mu: the keys of Hub.candidates that lead to this connection

	// Used only by the connection's goroutine.
	TLS     *tls.Conn        // nil without TLS
	pending *faults.Injected // a handshake fault that has not happened yet
}

var _ net.Conn = (*Conn)(nil)

// Read passes the client's bytes to the front while the mode is Open, and discards them otherwise.
func (c *Conn) Read(p []byte) (int, error) {
	for {
		n, err := c.Stream.Read(p)
		if n > 0 && !c.heard.Load() {
			c.Heard()
		}
		if c.Mode.Load() == Open {
			return n, err
		}
		if err != nil {
			return 0, err
		}
	}
}

// Write sends bytes, or drops them unless the mode is Open.
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

// Crowded returns nil if the client reads fast enough for more bulk data, or else a channel that is
// closed when it does or the connection has ended. Connections in memory have no limit.
func (c *Conn) Crowded() <-chan struct{} {
	if s, ok := c.Raw.(*Socket); ok {
		return s.crowded()
	}
	return nil
}

// Close ends the connection in order: the client can read everything that was sent, then sees the
// end.
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

// CutFor ends the connection with RST. Over TCP it follows what was written before; in memory that
// may be lost.
func (c *Conn) CutFor(cause error) {
	c.SetCause(cause)
	c.Leave(Over)
	abort(c.Raw)
}

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

// Silence makes the connection half-open for good; false if the mode was not Open.
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

// CloseGracefully ends the hub's side so that the client can read everything that was sent, even
// while it is still sending: closing a TCP connection with unread bytes would reset it. The client
// has one second to close.
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

// Drain waits until the connection ends, and returns how. Only the connection's goroutine calls it,
// and only when the mode is not Open.
func (c *Conn) Drain() error {
	var p [512]byte
	for {
		if _, err := c.Read(p[:]); err != nil {
			return err
		}
	}
}

// Leave moves to a mode further down the list and returns the previous one.
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

// SetCause records why the hub ended the connection. The first cause wins.
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

// SetDeadline sets the broker's deadline while the mode is Open.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Mode.Load() != Open {
		return nil
	}
	return c.Raw.SetDeadline(t)
}

// LimitRead is SetDeadline for reads only.
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

// LocalAddr returns the hub's address.
func (c *Conn) LocalAddr() net.Addr { return c.Raw.LocalAddr() }

// RemoteAddr returns the client's address.
func (c *Conn) RemoteAddr() net.Addr { return c.Raw.RemoteAddr() }

// Sleep waits for d; false when the connection ended before.
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
