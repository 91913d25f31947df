package memconn

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Network is a listener together with its dialer. Make it inside the bubble that uses it.
type Network struct {
	addr Addr

	mu      sync.Mutex    // guards memory only
	accept  sync.Cond     // Accept waits for backlog or closed
	changed chan struct{} // closed and replaced when hang, refuse or closed change; wakes hanging dials

	backlog []*Conn // the listener's ends that were not accepted yet
	last    *Conn
	dialed  int
	buffer  int
	latency func() time.Duration
	hang    bool
	refuse  bool
	closed  bool
}

var _ net.Listener = (*Network)(nil)

// NewNetwork returns a network whose listener has the given address, for example
// "hub.example.test:8883".
func NewNetwork(addr string) *Network {
	n := &Network{addr: Addr(addr), changed: make(chan struct{}), buffer: DefaultBuffer}
	n.accept.L = &n.mu
	return n
}

// Accept waits for the next connection and returns the listener's end of it, always a *[Conn].
// After Close it returns [net.ErrClosed].
func (n *Network) Accept() (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !n.closed && len(n.backlog) == 0 {
		n.accept.Wait()
	}
	if n.closed {
		return nil, &net.OpError{Op: "accept", Net: n.addr.Network(), Addr: n.addr, Err: net.ErrClosed}
	}
	c := n.backlog[0]
	n.backlog = n.backlog[1:]
	return c, nil
}

// Close ends Accept, refuses dials, including hanging ones, and resets connections that were not
// accepted. Accepted connections stay open. A second Close does nothing.
func (n *Network) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	left := n.backlog
	n.backlog = nil
	n.accept.Broadcast()
	n.wakeLocked()
	n.mu.Unlock()
	for _, c := range left {
		c.Reset()
	}
	return nil
}

// Addr returns the listener's address, an [Addr].
func (n *Network) Addr() net.Addr { return n.addr }

// DialContext connects to the listener and returns the caller's end, always a *[Conn]. It does not
// wait for Accept. It accepts any network and address; RemoteAddr returns that address. It fails
// with ECONNREFUSED while the network refuses dials or is closed, and with the context's error if
// that ends first. The signature is that of [net.Dialer.DialContext].
func (n *Network) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: Addr(addr), Err: err}
	}
	for {
		if err := ctx.Err(); err != nil {
			return fail(err)
		}
		c, changed := n.dial(addr)
		switch {
		case c != nil:
			return c, nil
		case changed == nil:
			return fail(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// dial makes one attempt. It returns a connection, a channel to wait for, or neither for a refusal.
func (n *Network) dial(addr string) (*Conn, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.refuse, n.closed:
		return nil, nil
	case n.hang:
		return nil, n.changed
	}
	n.dialed++
	c, s := Pair(fmt.Sprintf("mem:%d", n.dialed), addr)
	c.SetBuffer(n.buffer)
	c.SetLatency(n.latency)
	n.last = c
	n.backlog = append(n.backlog, s)
	n.accept.Signal()
	return c, nil
}

// Refuse makes all dials fail with ECONNREFUSED, including hanging ones, or lets them succeed
// again. Existing connections are not affected.
func (n *Network) Refuse(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = on
	n.wakeLocked()
}

// Hang makes dials wait as if no answer came, until their context ends or Hang(false) lets them
// continue.
func (n *Network) Hang(on bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hang = on
	n.wakeLocked()
}

// SetBuffer sets [Conn.SetBuffer] for later connections.
func (n *Network) SetBuffer(bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.buffer = bytes
}

// SetLatency sets [Conn.SetLatency] for later connections.
func (n *Network) SetLatency(f func() time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.latency = f
}

// Last returns the dialer's end of the newest connection, nil before the first.
func (n *Network) Last() *Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.last
}

// wakeLocked makes hanging dials check the state again.
func (n *Network) wakeLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}
