package hub

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Injected is a fault passed to Inject. It stays valid after the fault has ended.
type Injected struct {
	hub   *Hub
	Fault fault.Fault
	draws *rand.Rand // used under faults.mu

	// Guarded by Faults.mu.
	seen  int       // matching events so far
	left  int       // remaining hits; negative = no limit
	fired int       // hits that happened
	begun bool      // in force; false while a fault with a duration waits for its first message
	until time.Time // when it ends; zero = no end
	step  int       // Statuses used so far
	next  time.Time // Throttle: when the next PUBACK may be sent, or the next request is accepted
	day   int64     // Quota: the day that used counts
	used  int       // Quota: messages so far
}

// Faults is the set of faults injected into a hub.
type Faults struct {
	seed  uint64
	count atomic.Int32 // length of list; zero is the fast path

	mu   sync.Mutex
	list []*Injected
	made uint64 // faults so far; each draws from its own stream
}

func (f *Faults) init(seed uint64) {
	f.seed = cmp.Or(seed, rand.Uint64())
}

// Inject puts a fault in force.
func (h *Hub) Inject(f fault.Fault) *Injected {
	if err := f.Check(); err != nil {
		panic("testbroker: Inject: " + err.Error())
	}
	f = f.Resolved()
	in := &Injected{hub: h, Fault: f, left: f.Times}

	h.Faults.mu.Lock()
	h.Faults.made++
	in.draws = rand.New(rand.NewPCG(h.Faults.seed, h.Faults.made))
	h.Faults.list = append(h.Faults.list, in)
	h.Faults.count.Store(int32(len(h.Faults.list)))
	if !f.Kind.Lasts() || f.After == 0 {
		in.beginLocked()
	}
	begun := in.begun
	h.Faults.mu.Unlock()
	h.Event(in.event(event.FaultDeclared), nil)
	if begun {
		h.Begin(in)
	}
	return in
}

func (in *Injected) beginLocked() {
	in.begun = true
	if in.Fault.For > 0 {
		in.until = time.Now().Add(in.Fault.For)
	}
}

// Begin applies a fault to the existing connections.
func (h *Hub) Begin(in *Injected) {
	if in.Fault.Kind != fault.HalfOpen && in.Fault.Kind != fault.Absent {
		return
	}
	for _, c := range h.ConnsOf(in.Fault.Device) {
		if in.Fault.Kind == fault.HalfOpen {
			if c.Silence() {
				h.Happened(in, c)
			}
			continue
		}
		if c.Mode.Load() != Over {
			h.Happened(in, c)
			c.CutFor(FaultError(fault.Absent))
		}
	}
}

// Fired returns how often the fault has happened.
func (in *Injected) Fired() int {
	in.hub.Faults.mu.Lock()
	defer in.hub.Faults.mu.Unlock()
	return in.fired
}

// WaitFired waits until the fault has happened at least n times. It fails when the context ends or
// the hub is closed.
func (in *Injected) WaitFired(ctx context.Context, n int) error {
	return in.hub.Until(ctx, func() bool { return in.Fired() >= n })
}

// Remove ends the fault. Its past effects remain. A second Remove does nothing.
func (in *Injected) Remove() {
	f := &in.hub.Faults
	f.mu.Lock()
	there := slices.Contains(f.list, in)
	f.removeLocked(in)
	f.mu.Unlock()
	if there {
		in.hub.Event(in.event(event.FaultRemoved), nil)
	}
}

// event returns the event of a fault that was declared or removed.
func (in *Injected) event(k event.Kind) event.Event {
	id := identity.SplitIdentity(in.Fault.Device)
	return event.Event{Kind: k, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}
}

func (f *Faults) removeLocked(in *Injected) {
	f.list = slices.DeleteFunc(slices.Clone(f.list), func(other *Injected) bool { return other == in })
	f.count.Store(int32(len(f.list)))
}

// Any reports whether there are faults.
func (f *Faults) Any() bool { return f.count.Load() > 0 }

// Take returns a fault of this kind that hits the present event, and uses up one of its times; nil
// if there is none. The caller applies the fault, then calls Happened.
func (f *Faults) Take(kind fault.Kind, id identity.Identity) *Injected {
	return f.TakeIf(kind, id, nil)
}

// TakeIf is Take for faults that depend on more than the identity.
func (f *Faults) TakeIf(kind fault.Kind, id identity.Identity, ok func(*fault.Fault) bool) *Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var hit *Injected
	for _, in := range f.activeLocked() {
		if in.Fault.Kind != kind || !id.Matches(in.Fault.Device) || ok != nil && !ok(&in.Fault) {
			continue
		}
		in.seen++
		if in.seen <= in.Fault.After || hit != nil || in.left == 0 {
			continue
		}
		if p := in.Fault.Probability; p > 0 && in.draws.Float64() >= p {
			continue
		}
		in.left--
		hit = in
	}
	return hit
}

// Release gives back a time used up by Take, when the connection ended before the fault could
// happen.
func (f *Faults) Release(in *Injected) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in.left++
}

// InForce returns a fault with a duration that is in force for an identity; nil if there is none.
func (f *Faults) InForce(kind fault.Kind, id identity.Identity) *Injected {
	return f.InForceIf(kind, id, nil)
}

// InForceIf is InForce for faults that depend on more than the identity.
func (f *Faults) InForceIf(kind fault.Kind, id identity.Identity, ok func(*fault.Fault) bool) *Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.activeLocked() {
		if in.Fault.Kind == kind && in.begun && id.Matches(in.Fault.Device) && (ok == nil || ok(&in.Fault)) {
			return in
		}
	}
	return nil
}

// Reached counts an arriving message for faults with a duration, and returns those that begin with
// it.
func (f *Faults) Reached(id identity.Identity) []*Injected {
	if f.count.Load() == 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var begun []*Injected
	for _, in := range f.activeLocked() {
		if in.begun || !id.Matches(in.Fault.Device) {
			continue
		}
		if in.seen++; in.seen > in.Fault.After {
			in.beginLocked()
			begun = append(begun, in)
		}
	}
	return begun
}

// activeLocked returns the faults that have not ended. The slice is never modified.
func (f *Faults) activeLocked() []*Injected {
	for _, in := range f.list {
		if !in.until.IsZero() && time.Until(in.until) <= 0 {
			f.removeLocked(in)
		}
	}
	return f.list
}

// Pace returns when Throttle sends the next PUBACK; the zero time means at once.
func (f *Faults) Pace(in *Injected) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	at := in.next
	if at.Before(now) {
		at = now
	}
	in.next = at.Add(time.Duration(float64(time.Second) / in.Fault.Rate))
	if at.Equal(now) {
		return time.Time{}
	}
	return at
}

// Happened counts a fault. It is called when the effect is certain. If the client can observe the
// effect, it is called just before, so that a client that has seen a fault finds it counted. c is
// nil when there is no connection yet.
func (h *Hub) Happened(in *Injected, c *Conn) { h.HappenedTo(in, c, identity.Identity{}) }

// HappenedTo is Happened for one identity of a connection that can have many.
func (h *Hub) HappenedTo(in *Injected, c *Conn, id identity.Identity) {
	h.Faults.mu.Lock()
	in.fired++
	h.Faults.mu.Unlock()
	h.Event(event.Event{Kind: event.FaultFired, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}, c)
	h.Changed.Wake()
}

// FaultError is the cause of a connection's end when a fault ended it.
type FaultError fault.Kind

// Error names the fault.
func (e FaultError) Error() string { return "fault " + fault.Kind(e).String() }
