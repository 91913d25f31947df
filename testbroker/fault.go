package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
)

// Inject puts a fault in force. It panics for a fault that cannot mean what it says: see
// [fault.Fault.Check].
func (h *Hub) Inject(f fault.Fault) *Injected { return &Injected{h.hub.Inject(f)} }

// Injected is a fault in force: see [Hub.Inject]. It stays valid after the fault has ended.
type Injected struct{ in *faults.Injected }

// Fired returns how often the fault has happened.
func (i *Injected) Fired() int { return i.in.Fired() }

// WaitFired waits until the fault has happened at least n times. It fails when the context ends or
// the hub is closed.
func (i *Injected) WaitFired(ctx context.Context, n int) error { return i.in.WaitFired(ctx, n) }

// Remove ends the fault. Its past effects remain. A second Remove does nothing.
func (i *Injected) Remove() { i.in.Remove() }

// FaultMessages returns the faults that devices have requested with messages, in order of arrival.
func (h *Hub) FaultMessages() []fault.Message { return h.hub.Requests.Messages() }
