package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Agent takes a device through updates. Its methods are safe for concurrent use.
type Agent struct {
	opt     Options
	paced   bool          // Policy is the default one
	running chan struct{} // holds a value while Run runs; capacity 1
	kick    chan struct{} // has a value when Run shall look at its state again; capacity 1
	done    chan outcome  // the result of the worker; capacity 1

	// turn holds a value while a method uses the fields below; capacity 1. It is a channel because it
	// is held during calls of the Service.
	turn    chan struct{}
	s       state
	check   call
	report  call
	news    bool          // a report about progress is to be sent
	next    *Offer        // begins when the current workflow is undone
	restart bool          // the program shall restart when the current workflow is undone
	heard   chan struct{} // closed when the Service has answered

	// The worker does the next phase of s.work, on a goroutine of its own.
	busy    bool
	dropped string // why the result of the worker does not count; empty: it does
	stop    func() // ends the worker's context

	mu      sync.Mutex
	status  Status
	asked   bool              // Check was called
	alive   bool              // the phase went on: see wentOn
	have    int64             // the argument of wentOn
	urls    map[string]string // of the current workflow, as the service offered them latest
	renewal chan struct{}     // nil: nobody waits; closed when a Check that began later is answered
}

var errRunning = fault(transport.Conflict, "run: another Run of this Agent has not returned")

// New reads the state in the Store. The error names a wrong option, or is the Store's. A damaged
// state counts as none.
func New(o *Options) (*Agent, error) {
	if o == nil {
		o = new(Options)
	}
	a := &Agent{opt: *o, paced: o.Policy == nil, running: make(chan struct{}, 1), kick: make(chan struct{}, 1),
		done: make(chan outcome, 1), turn: make(chan struct{}, 1), heard: make(chan struct{})}
	if err := a.opt.complete(); err != nil {
		return nil, err
	}
	stored, err := o.Store.Load()
	if err != nil {
		return nil, scrub.Cause(err)
	}
	if !a.s.decode(stored) {
		a.s = state{}
	}
	a.s.load()
	a.status = a.standing(nil)
	return a, nil
}

// complete validates the options and sets the defaults.
func (o *Options) complete() error {
	if o.Profile == 0 {
		o.Profile = 1
	}
	if o.Interval == 0 {
		o.Interval = time.Hour
	}
	switch {
	case o.Spread == 0:
		o.Spread = o.Interval / 4
	case o.Spread < 0:
		o.Spread = 0
	}
	if o.Policy == nil {
		o.Policy = retrypolicy.ExponentialBackoffWithJitter{C: time.Second, Cmin: time.Second, Cmax: time.Minute, Jd: 0.2}
	}
	if o.Rand == nil {
		o.Rand = rand.NewPCG(o.Properties.seed(), uint64(time.Now().UnixNano())).Uint64
	}
	for _, row := range []struct {
		bad  bool
		text string
	}{
		{o.Service == nil, "Service is nil; give one of package update/dpsupdate or update/classic"},
		{len(o.Handlers) == 0, "Handlers is empty; give a Handler for the name that steps have, or for all: \"\""},
		{o.Verify == nil, "Verify is nil; give the method of adusign.NewKeys"},
		{o.Fetch == nil, "Fetch is nil; give host.NewFetcher"},
		{o.Store == nil, "Store is nil; give host.NewStore"},
		{!o.Properties.valid(), "Properties: give 1 to 5 properties with different names that are not empty"},
		{o.Profile < 0, "Profile is negative; give 1 or more"},
		{o.Interval < 0, "Interval is negative; give a duration, 0 for an hour"},
	} {
		if row.bad {
			return fault(transport.Invalid, "Options."+row.text)
		}
	}
	return retrypolicy.Validate(o.Policy)
}

const maxDeviceProperties = 5

func (p Properties) valid() bool {
	for i := range p {
		for j := range i {
			if texts.EqualFold(p[i].Name, p[j].Name) {
				return false
			}
		}
		if p[i].Name == "" {
			return false
		}
	}
	return len(p) > 0 && len(p) <= maxDeviceProperties
}

// seed tells devices apart by their values.
func (p Properties) seed() uint64 {
	var values string
	for i := range p {
		values += p[i].Value
	}
	return texts.Hash(values)
}

// Check asks Run to call the Service soon. It does not wait.
func (a *Agent) Check() {
	a.mu.Lock()
	a.asked = true
	a.mu.Unlock()
	a.wake()
}

// wake lets Run look at its state again.
func (a *Agent) wake() {
	select {
	case a.kick <- struct{}{}:
	default:
	}
}

// Status returns how the agent stands.
func (a *Agent) Status() Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// OnboardTime is the most time that Onboard takes.
const OnboardTime = time.Minute

// Onboard asks for an update before the first registration of the device, and returns within
// OnboardTime. Run then installs the update. Call it before the registration, such as in
// provisioning.Client.Before, and register whatever its error is: an update must not keep a device
// from its hub. While an update is in progress, Onboard returns nil at once.
func (a *Agent) Onboard(ctx context.Context) error {
	ctx, cancel := lifetime.WithinTime(ctx, OnboardTime)
	defer cancel()
	if err := a.take(ctx); err != nil {
		return err
	}
	defer a.give()
	if a.s.work != nil {
		return nil
	}
	var answer *Answer
	r := retrypolicy.Retrier{Policy: a.opt.Policy, Timeout: -1, Classify: a.judge}
	err := a.guard(func() error {
		err := r.Do(ctx, func(ctx context.Context) error {
			return bounded(ctx, func(ctx context.Context) (err error) {
				answer, err = a.ask(ctx, true)
				return err
			})
		})
		if err != nil {
			return err
		}
		return a.answered(ctx, answer)
	})
	a.publish(err)
	a.wake()
	return err
}

// take waits for the turn.
func (a *Agent) take(ctx context.Context) error {
	select {
	case a.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *Agent) give() { <-a.turn }

// standing returns the status. The turn is held.
func (a *Agent) standing(err error) Status {
	st := Status{Latest: a.s.latest, Unsent: len(a.s.reports), Err: err}
	if n := len(a.s.ended); n > 0 {
		st.WorkflowID, st.Update = a.s.ended[n-1], a.s.installed
	}
	if w := a.s.work; w != nil {
		st.Phase, st.WorkflowID, st.Update = w.phase, w.offer.WorkflowID, UpdateID{}
		st.Step, st.Steps = w.step, len(w.results)
		if w.manifest != nil {
			st.Update = w.manifest.ID
		}
	}
	return st
}

// publish makes the state visible, with the latest failure. The turn is held.
func (a *Agent) publish(err error) {
	st := a.standing(err)
	a.mu.Lock()
	a.status = st
	a.mu.Unlock()
	if a.opt.OnStatus != nil {
		_ = callback.Run("Options.OnStatus of package agent", func() { a.opt.OnStatus(st) })
	}
}

// failing shows a failure of the worker that is going to be repeated.
func (a *Agent) failing(err error) {
	a.mu.Lock()
	a.status.Err = err
	a.mu.Unlock()
	a.wentOn(0)
}

// installed returns the update that the device has.
func (a *Agent) installed() UpdateID {
	id := a.s.installed
	if a.opt.Installed != nil {
		_ = callback.Run("Options.Installed of package agent", func() { id = a.opt.Installed() })
	}
	return id
}
