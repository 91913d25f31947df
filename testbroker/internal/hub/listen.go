package hub

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

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
