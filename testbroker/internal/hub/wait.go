package hub

import (
	"context"
	"sync"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// Wait waits until ok returns true.
func (h *Hub) Wait(ctx context.Context, ok func(log []hubdata.Message) bool) error {
	var r telemetry.Reading
	return h.Until(ctx, func() bool { return ok(r.Update(&h.Telemetry)) })
}

// Until waits until ok returns true. It calls ok at once, and again after each change.
func (h *Hub) Until(ctx context.Context, ok func() bool) error {
	for {
		changed := h.Changed.next()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.Done:
			return ErrClosed
		}
	}
}

// A notifier wakes all goroutines that wait for a change. It costs almost nothing without waiters.
type notifier struct {
	mu sync.Mutex
	ch chan struct{} // nil = no waiters
}

// next returns a channel that the next change closes.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) Wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
