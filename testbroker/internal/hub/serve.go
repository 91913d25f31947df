package hub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A Stack is what a port of the hub serves.
type Stack struct {
	Protocol hubdata.Protocol // at first; a client on HTTP can switch to another protocol
	TLS      bool
}

// acceptPause is the delay after a failed Accept, for example when the process has no free file
// descriptor.
const acceptPause = 10 * time.Millisecond

// Listen opens a port on a real address.
func (h *Hub) Listen(addr string, at Stack) (net.Addr, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("testbroker: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		l.Close()
		return nil, ErrClosed
	}
	h.listeners = append(h.listeners, l)
	h.Wg.Go(func() { h.accept(l, at) })
	return l.Addr(), nil
}

// accept is the goroutine of a listener. It ends when the hub closes the listener. Close waits for
// it.
func (h *Hub) accept(l net.Listener, at Stack) {
	starved := false // the last Accept failed, and an event said so
	for {
		raw, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if !starved {
				starved = true
				h.Event(event.Event{Kind: event.Refused, Err: acceptError(err)}, nil)
			}
			timer := time.NewTimer(acceptPause)
			select {
			case <-timer.C:
			case <-h.Done:
				timer.Stop()
				return
			}
			continue
		}
		starved = false
		// The port stays open, because another program could take a closed port before the absence ends.
		if in := h.Faults.InForce(fault.Absent, identity.Identity{}); in != nil {
			h.Happened(in, nil)
			abort(raw)
			continue
		}
		h.serve(raw, at)
	}
}

// acceptError says what to do when connections cannot be accepted.
func acceptError(err error) error {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return fmt.Errorf("connections wait: %w; let the process open more files, such as by ulimit -n, or connect fewer "+
			"clients", err)
	}
	return fmt.Errorf("connections wait: %w", err)
}

// Dial connects to a port of the hub in memory.
func (h *Hub) Dial(ctx context.Context, network, addr string, at Stack) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: memconn.Addr(addr), Err: err}
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	if in := h.Faults.InForce(fault.Absent, identity.Identity{}); in != nil {
		h.Happened(in, nil)
		return fail(refused)
	}
	client, raw := memconn.Pair("mem:"+h.nextPort(), addr)
	// Both buffers are unlimited. A hub that blocked here until a client reads would hold locks of the
	// broker meanwhile, and time in a synctest bubble would stop.
	raw.SetBuffer(0)
	if !h.serve(raw, at) {
		return fail(refused)
	}
	return client, nil
}

func (h *Hub) nextPort() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprint(h.accepted + 1)
}

// serve runs a connection in its own goroutine; false when the hub is closed or being reset, its
// store has failed, or its gateway is stopped.
func (h *Hub) serve(raw net.Conn, at Stack) bool {
	sock, real := raw.(*net.TCPConn)
	var queue *Socket
	if real {
		queue = newSocket(sock)
		raw = queue
	}
	c := &Conn{Stream: raw, Raw: raw, Under: raw, stack: at, speaks: at.Protocol, Hub: h, Closed: make(chan struct{}),
		Done: make(chan struct{})}
	h.mu.Lock()
	if h.closed || h.resetting != nil || h.unsaved || h.downLocked() {
		h.mu.Unlock()
		abort(raw)
		return false
	}
	h.accepted++
	c.Number = h.accepted
	h.conns[c] = struct{}{}
	h.Wg.Add(1)
	h.running.Add(1)
	if real {
		h.Wg.Go(queue.send)
	}
	h.mu.Unlock()
	go h.run(c)
	return true
}

// run is the goroutine of a connection. It reads, and ends with the connection. Close waits for it.
func (h *Hub) run(c *Conn) {
	defer h.Wg.Done()
	defer h.running.Done()
	defer close(c.Done)
	c.SetDeadline(time.Now().Add(ConnectLimit))
	if in := h.Faults.InForce(fault.HalfOpen, identity.Identity{}); in != nil {
		if c.Silence() { // also during the handshake
			h.Happened(in, c)
		}
	}
	h.finish(c, h.speak(c))
}

// speak passes a connection to the front of its port, and to the next front when the client
// switches protocols.
func (h *Hub) speak(c *Conn) error {
	under, offer := h.Fronts[c.stack.Protocol].Below(c)
	c.Under = under
	if c.stack.TLS && c.Mode.Load() == Open {
		if err := h.secure(c, offer); err != nil {
			return err
		}
	}
	next, err := h.Fronts[c.stack.Protocol].Serve(c)
	if err == nil && next != 0 {
		h.mu.Lock()
		c.speaks = next
		h.mu.Unlock()
		_, err = h.Fronts[next].Serve(c)
	}
	return err
}

// finish removes a connection from all tables and reports its end.
func (h *Hub) finish(c *Conn, err error) {
	c.Close()
	h.detach(c)
	if c.pending != nil {
		h.Faults.Release(c.pending)
	}
	h.mu.Lock()
	c.leaveLocked()
	if c.peer != nil {
		c.peer.Leave()
	}
	live, closed, peer := c.live, h.closed, c.peer
	c.live = false
	h.mu.Unlock()

	cause := c.causeOr(err)
	if cause == nil {
		cause = ErrDisconnect
	}
	if peer != nil {
		peer.Finish(cause, live, closed)
	} else {
		h.Unserved(c, cause)
	}
	h.Changed.Wake()
}
