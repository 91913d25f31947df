package keep

import (
	"context"
	"errors"
	"sync"
)

// ErrClosed is returned by waits for an owner that is closed.
var ErrClosed = errors.New("testbroker: hub is closed")

// A Notifier wakes all goroutines that wait for a change. It costs almost nothing without waiters.
type Notifier struct {
	mu sync.Mutex
	ch chan struct{} // nil = no waiters
}

// next returns a channel that the next change closes.
func (n *Notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

// Wake tells the waiters of a change.
func (n *Notifier) Wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// Until waits until ok returns true. It calls ok at once, and again after each change. It fails
// when the context ends, or with ErrClosed when the channel is closed.
func (n *Notifier) Until(ctx context.Context, closed <-chan struct{}, ok func() bool) error {
	for {
		changed := n.next()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-closed:
			return ErrClosed
		}
	}
}
