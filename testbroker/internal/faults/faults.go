// Package faults has what makes a hub fail on command: declared faults, quotas and limits.
package faults

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

// Injected is a fault passed to Faults.Add. It stays valid after the fault has ended.
type Injected struct {
	of    *Faults
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
	event func(event.Event)
	until func(context.Context, func() bool) error
	count atomic.Int32 // length of list; zero is the fast path

	mu   sync.Mutex
	list []*Injected
	made uint64 // faults so far; each draws from its own stream
}

// Init sets the seed, zero for a random one, where events of faults go, and how to wait for a
// condition.
func (f *Faults) Init(seed uint64, report func(event.Event), until func(context.Context, func() bool) error) {
	f.seed, f.event, f.until = cmp.Or(seed, rand.Uint64()), report, until
}

// Add adds a fault, and reports whether it is in force at once.
func (f *Faults) Add(one fault.Fault) (in *Injected, begun bool) {
	if err := one.Check(); err != nil {
		panic("testbroker: Inject: " + err.Error())
	}
	one = one.Resolved()
	in = &Injected{of: f, Fault: one, left: one.Times}
	f.mu.Lock()
	f.made++
	in.draws = rand.New(rand.NewPCG(f.seed, f.made))
	f.list = append(f.list, in)
	f.count.Store(int32(len(f.list)))
	if !one.Kind.Lasts() || one.After == 0 {
		in.beginLocked()
	}
	begun = in.begun
	f.mu.Unlock()
	f.event(in.event(event.FaultDeclared))
	return in, begun
}

// Count counts a fault that happens.
func (f *Faults) Count(in *Injected) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in.fired++
}

func (in *Injected) beginLocked() {
	in.begun = true
	if in.Fault.For > 0 {
		in.until = time.Now().Add(in.Fault.For)
	}
}

// Fired returns how often the fault has happened.
func (in *Injected) Fired() int {
	in.of.mu.Lock()
	defer in.of.mu.Unlock()
	return in.fired
}

// WaitFired waits until the fault has happened at least n times. It fails when the context ends or
// the hub is closed.
func (in *Injected) WaitFired(ctx context.Context, n int) error {
	return in.of.until(ctx, func() bool { return in.Fired() >= n })
}

// Remove ends the fault. Its past effects remain. A second Remove does nothing.
func (in *Injected) Remove() {
	f := in.of
	f.mu.Lock()
	there := slices.Contains(f.list, in)
	f.removeLocked(in)
	f.mu.Unlock()
	if there {
		f.event(in.event(event.FaultRemoved))
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

// NextStatus returns the next status of a fault's list, in turn; zero lets the request pass.
func (f *Faults) NextStatus(in *Injected) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	status := in.Fault.Statuses[in.step%len(in.Fault.Statuses)]
	in.step++
	return status
}

// Early returns how long before its allowed time a request arrives. If it is zero, the request is
// in time and the allowed time of the next one is set.
func (f *Faults) Early(in *Injected) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if in.next.After(now) {
		return in.next.Sub(now)
	}
	in.next = now.Add(time.Duration(float64(time.Second) / in.Fault.Rate))
	return 0
}

// Clear removes all faults.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
	f.count.Store(0)
}
