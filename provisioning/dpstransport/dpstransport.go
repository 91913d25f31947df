// Package dpstransport connects a device to the hub that the provisioning service assigns to it,
// and asks the service again when that hub refuses the device or is gone.
//
//	inner := func(*transport.Credentials, *provisioning.Assignment) transport.Transport {
//		return mqtt.New(nil)
//	}
//	store := dpstransport.File("/var/lib/thermometer/assignment")
//	t, err := dpstransport.New(registrar, inner, &dpstransport.Options{Store: store})
//	client, err := device.New(t.Credentials(), t, nil)
//
// A Transport is a transport.Transport around another one. The client that uses it keeps its queue
// when the device moves to another hub, or gets another device id: messages belong to the client.
//
// # When the service is asked
//
//   - Without an assignment, in memory or in Options.Store. So a restart does not ask.
//   - When the hub refuses the identity: Unauthorized, Forbidden, NotFound. If the device has two
//     keys, the other one is tried first, at once.
//   - When the hub's name was not found 5 times in a row.
//   - After Options.MaxFailures failed connections in a row.
//
// Throttled, Unavailable, Quota and ClockUnset do not count: they say nothing about the assignment.
// Neither does a failure of the device's own key, which no hub has refused: the service is asked
// once, since it gives a TPM another key, and then the failure is passed on to the client. When
// three assignments in a row are refused, the refusal is passed on to the client, which ends. A hub
// that may lift its refusal (transport.ErrMayBeLifted) is an exception: the service is asked again
// and again, at once after the first refusal, and then with the hub's delays, doubling to an hour.
//
// Failed connections say less than a refusal: the network may be at fault. So the assignment stays
// if the service then fails or refuses, and the hub is tried again.
//
// An attempt to register is part of an attempt to connect, and restarts its time-out as long as the
// service works on it. After a failure the client waits as after any failed attempt, at least as
// long as the policy of the registrar says. So OutageLimit, Reconnect and a DialLimiter of the
// client apply. The random wait of provisioning.Options.Spread takes no slot of the DialLimiter.
package dpstransport

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/internal/attempt"
	"github.com/hubline-iot/hubline/transport"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults.
type Options struct {
	// Store keeps the assignment over restarts. Nil: each start asks the service.
	Store Store
	// MaxFailures is the number of failed connections in a row after which the service is asked. 0:
	// 50.
	MaxFailures int
	// OnEvent receives each step, on a goroutine of the client. It must not block.
	OnEvent func(Event)
}

const (
	defaultMaxFailures = 50
	maxNameFailures    = 5
	// maxRefusals is the number of assignments in a row that hubs may refuse.
	maxRefusals = 3
	// maxPause is the longest pause between refused assignments that a hub may accept later.
	maxPause     = time.Hour
	maxDoublings = 6
	// stable is how long a connection lasts that ends such a row: a hub may let a device connect, and
	// refuse it then.
	stable = time.Minute
)

// Transport connects one client. Make it with New.
type Transport struct {
	registrar *provisioning.Client
	inner     Inner
	opt       Options
	busy      atomic.Bool // Dial or a session runs

	// Owned by the goroutine of Dial and Run.
	record       *Record                // nil: ask the service
	before       *Record                // the latest one
	loaded       bool                   // the Store has nothing to add
	transport    transport.Transport    // for the record; nil: not made yet
	reason       error                  // why the service is asked
	refused      bool                   // the reason is that the hub refused the assignment
	attempts     *provisioning.Attempts // nil: no registration is in progress
	failures     int                    // failed connections in a row
	nameFailures int
	refusals     int       // refused assignments in a row
	unasked      bool      // the service was asked because the device's own key failed
	twin         uint32    // number of the twin
	innerTwin    uint32    // that of the latest session of transport
	flipped      bool      // the other key was tried at this hub
	connected    time.Time // when the latest session began

	mu    sync.Mutex // guards shown
	shown provisioning.Assignment
}

var (
	_ transport.Transport = (*Transport)(nil)
	_ transport.Twinned   = session{}
	_ transport.Twinned   = progressor{}
)

// Inner makes the transport for an assignment, with its credentials. It is called for each one, so
// a device may move to a hub of another kind: provisioning.Assignment.MQTTv5 tells which.
type Inner func(creds *transport.Credentials, a *provisioning.Assignment) transport.Transport

// New returns a Transport around those that inner makes. The error is of Kind Invalid.
func New(registrar *provisioning.Client, inner Inner, o *Options) (*Transport, error) {
	t := &Transport{registrar: registrar, inner: inner}
	if o != nil {
		t.opt = *o
	}
	switch {
	case registrar == nil:
		return nil, invalid("registrar is nil; provisioning.New makes one")
	case inner == nil:
		return nil, invalid("inner is nil; give a function that returns a transport, such as mqtt.New(nil)")
	case t.opt.MaxFailures < 0:
		return nil, invalid("options: MaxFailures is negative; give 1 at least, or 0 for 50")
	case t.opt.MaxFailures == 0:
		t.opt.MaxFailures = defaultMaxFailures
	}
	return t, nil
}

func invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New(text)}
}

// Credentials returns credentials for device.New. They name the provisioning service instead of a
// hub; each connection uses those of the assignment.
func (t *Transport) Credentials() *transport.Credentials { return t.registrar.Login() }

// Assignment returns the assignment in use; the zero value before the first.
func (t *Transport) Assignment() provisioning.Assignment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shown
}

// Dial connects to the assigned hub. If there is no assignment, it registers first.
func (t *Transport) Dial(ctx context.Context, cfg *transport.Config) (s transport.Session, err error) {
	if !t.busy.CompareAndSwap(false, true) {
		return nil, invalid("this Transport serves a client already; make one for each client with dpstransport.New")
	}
	defer func() {
		if s == nil { // also when a callback panics
			t.busy.Store(false)
		}
	}()
	return t.dial(ctx, cfg)
}

func (t *Transport) dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if t.record == nil && !t.loaded {
		t.load()
	}
	if t.record == nil {
		if err := t.register(ctx, cfg); err != nil {
			return nil, err
		}
	}
	record := t.record
	s, err := t.connect(ctx, cfg)
	if err != nil && t.record != nil && t.record != record { // the other key takes no delay
		if cfg.Progress != nil {
			cfg.Progress()
		}
		return t.connect(ctx, cfg)
	}
	return s, err
}

// connect connects to the assigned hub, once.
func (t *Transport) connect(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	creds := t.registrar.Credentials(&t.record.Assignment)
	if t.transport == nil {
		if failed := callback.Run("Inner",
			func() { t.transport = t.inner(creds, &t.record.Assignment) }); failed != nil {
			return nil, failed
		}
		if t.transport == nil {
			return nil, invalid("Inner returned no transport; return one, such as mqtt.New(nil)")
		}
	}
	signed := creds.Time()
	wrapped := session{t: t, creds: creds, signed: signed, refused: new(atomic.Pointer[transport.Error])}
	wrapped.sink = attempt.Watch(cfg.Sink, wrapped.refusedLater)
	own := *cfg
	own.Creds, own.Sink = creds, wrapped.sink
	s, err := t.transport.Dial(ctx, &own)
	if err != nil {
		return nil, t.failed(ctx, creds, signed, err)
	}
	t.failures, t.nameFailures, t.unasked = 0, 0, false
	t.attempts, t.connected = nil, time.Now()
	if n := attempt.TwinNumber(s); n != t.innerTwin { // package dpscert registers, too
		t.innerTwin = n
		t.twin++
	}
	wrapped.Session, wrapped.twin = s, t.twin
	if p, ok := s.(transport.Progressor); ok {
		return progressor{wrapped, p}, nil
	}
	return wrapped, nil
}

// load takes the assignment of the Store, if that is for this registration.
func (t *Transport) load() {
	if t.opt.Store == nil {
		return
	}
	var r *Record
	err := callback.Call("Store.Load", func() (err error) {
		r, err = t.opt.Store.Load()
		return err
	})
	t.loaded = err == nil || errors.Is(err, errDamaged)
	switch {
	case err != nil:
		t.publish(Event{Step: StepStoreFailed, Err: err})
	case r != nil && r.Registration == t.registrar.Registration() &&
		t.registrar.Credentials(&r.Assignment).Validate() == nil:
		t.use(r)
		if other := t.otherKey(); other != nil && t.registrar.Credentials(&r.Assignment).Sign == nil {
			t.use(other) // the device has the stored key no more
		}
		t.publish(Event{Step: StepLoaded, Hub: r.Assignment.Hub, DeviceID: r.Assignment.DeviceID})
	}
}

// use makes r the assignment.
func (t *Transport) use(r *Record) {
	t.record, t.before, t.loaded, t.transport = r, r, true, nil
	t.failures, t.nameFailures, t.flipped = 0, 0, false
	t.mu.Lock()
	t.shown = r.Assignment
	t.mu.Unlock()
}

// save stores the assignment in use.
func (t *Transport) save() {
	if t.opt.Store == nil {
		return
	}
	if err := callback.Call("Store.Save", func() error { return t.opt.Store.Save(t.record) }); err != nil {
		t.publish(Event{Step: StepStoreFailed, Hub: t.record.Assignment.Hub, DeviceID: t.record.Assignment.DeviceID,
			Err: err})
	}
}

// register asks the service, once.
func (t *Transport) register(ctx context.Context, cfg *transport.Config) error {
	t.publish(t.about(StepRegistering, t.reason))
	if t.attempts == nil {
		t.attempts = t.registrar.Attempts()
	}
	a, retry, err := t.attempt(ctx, cfg)
	if err != nil {
		return t.unassigned(ctx, retry, err)
	}
	t.attempts = nil
	before := t.before
	if before != nil {
		t.twin++ // the service may have made the device anew, even at the same hub
	}
	t.use(&Record{Registration: t.registrar.Registration(), Assignment: *a})
	t.save()
	t.publish(Event{Step: StepAssigned, Hub: a.Hub, DeviceID: a.DeviceID, DataReset: a.DataReset(),
		Moved: before != nil && (before.Assignment.Hub != a.Hub || before.Assignment.DeviceID != a.DeviceID)})
	return nil
}

// attempt makes one attempt to register.
func (t *Transport) attempt(ctx context.Context, cfg *transport.Config) (*provisioning.Assignment, time.Duration,
	error) {
	defer attempt.Report(cfg.Progress)()
	if err := attempt.Wait(ctx, cfg, t.attempts.Spread()); err != nil {
		return nil, -1, err
	}
	return t.attempts.Next(ctx)
}

// about returns an event about the latest assignment.
func (t *Transport) about(step Step, err error) Event {
	e := Event{Step: step, Err: err}
	if t.before != nil {
		e.Hub, e.DeviceID = t.before.Assignment.Hub, t.before.Assignment.DeviceID
	}
	return e
}

// unassigned handles a failed attempt to register, and returns the error of Dial. It is retryable
// if retry is not negative, or if there is an assignment that no hub has refused, unless the
// device's own key failed.
func (t *Transport) unassigned(ctx context.Context, retry time.Duration, err error) error {
	final := retry < 0
	if final {
		t.attempts = nil
	}
	e := transport.Find(err)
	if e == nil || ctx.Err() != nil {
		return err
	}
	own := *e
	own.Scope, own.Op, own.RetryAfter = transport.ScopeConnection, transport.OpDial, max(retry, e.RetryAfter, 0)
	own.Err = errchain.Unasked{Err: &registrationError{err}}
	kept := t.before != nil && !t.refused
	if kept {
		t.use(t.before)
		if !final { // one connection, and then the next attempt to register
			t.failures, t.nameFailures = t.opt.MaxFailures-1, maxNameFailures-1
		}
		t.publish(t.about(StepKept, err))
	}
	if (kept && !errchain.IsUnasked(err) || !final) && !errfilter.Of(&own).Retry {
		own.Kind = transport.Unavailable
	}
	return &own
}

// registrationError says that a failed dial did not come as far as the hub.
type registrationError struct{ error }

func (e *registrationError) Error() string { return "no hub is assigned: " + e.error.Error() }
func (e *registrationError) Unwrap() error { return e.error }

// failed decides what a failed connection says about the assignment.
func (t *Transport) failed(ctx context.Context, creds *transport.Credentials, signed time.Time, err error) error {
	e := transport.Find(err)
	if ctx.Err() != nil || e == nil {
		return err
	}
	switch e.Kind {
	case transport.Unauthorized, transport.Forbidden, transport.NotFound:
		switch {
		case creds.ClockRefused(signed, e):
			return err
		case errchain.IsUnasked(e):
			return t.failedHere(e)
		}
		return t.refuse(e)
	case transport.Throttled, transport.Unavailable, transport.Quota, transport.ClockUnset, transport.Invalid:
		return err
	default: // it counts
	}
	t.failures++
	if look, ok := errors.AsType[*net.DNSError](err); ok && look.IsNotFound {
		t.nameFailures++
	} else {
		t.nameFailures = 0
	}
	if t.failures >= t.opt.MaxFailures || t.nameFailures >= maxNameFailures {
		t.refused = false
		return t.ask(e)
	}
	return err
}

// failedHere handles a failure of the device's own key, which says nothing about the assignment.
func (t *Transport) failedHere(e *transport.Error) error {
	if t.unasked = !t.unasked; !t.unasked {
		return e
	}
	t.refused = false
	return t.ask(e)
}

// refuse handles the hub's refusal of the identity. The result is retryable, unless too many
// assignments were refused.
func (t *Transport) refuse(e *transport.Error) error {
	if other := t.otherKey(); t.flips(other, e) {
		t.use(other)
		t.flipped = true
		t.save()
		t.publish(Event{Step: StepOtherKey, Hub: other.Assignment.Hub, DeviceID: other.Assignment.DeviceID, Err: e})
		return again(e)
	}
	t.refused, t.attempts = true, nil
	end := t.ends(e)
	t.refusals++
	if end {
		t.refusals = 0
		t.record, t.reason = nil, e
		return e
	}
	return t.ask(t.paced(e))
}

// ends reports whether the refusal e is the one that ends the client.
func (t *Transport) ends(e *transport.Error) bool {
	return t.refusals+1 >= maxRefusals && !errors.Is(e, transport.ErrMayBeLifted)
}

// wasStable reports whether the session lasted long enough to end a row of refused assignments.
func (t *Transport) wasStable() bool { return time.Since(t.connected) >= stable }

// paced returns the refusal of a hub that may lift it with the delay that it asks for. The first
// refusal may be due to a move, so the service is asked without that delay. The hub's delays begin
// anew with each assignment, so a row of refusals doubles them here.
func (t *Transport) paced(e *transport.Error) *transport.Error {
	if !errors.Is(e, transport.ErrMayBeLifted) {
		return e
	}
	own := *e
	own.RetryAfter = 0
	if n := t.refusals - 2; n >= 0 {
		own.RetryAfter = min(max(e.RetryAfter, 0)<<min(n, maxDoublings), maxPause)
	}
	return &own
}

// flips reports whether the refusal e makes the device try its other key.
func (t *Transport) flips(other *Record, e *transport.Error) bool {
	return other != nil && e.Kind == transport.Unauthorized && !t.flipped
}

// otherKey returns the assignment with the other key, nil if there is none.
func (t *Transport) otherKey() *Record {
	other := *t.record
	other.Assignment.SecondKey = !other.Assignment.SecondKey
	if len(other.Assignment.Chain) > 0 || t.registrar.Credentials(&other.Assignment).Sign == nil {
		return nil
	}
	return &other
}

// ask makes the next Dial ask the service.
func (t *Transport) ask(e *transport.Error) error {
	t.record, t.reason = nil, e
	return again(e)
}

// again returns e with a retryable Kind.
func again(e *transport.Error) error {
	if e.Kind == transport.Network || e.Kind == transport.Timeout {
		return e
	}
	return &transport.Error{Kind: transport.Unavailable, Scope: transport.ScopeConnection, Op: e.Op, Proto: e.Proto,
		RetryAfter: max(e.RetryAfter, 0), Err: &changedError{e}}
}

// changedError is a failure after which the device tries something else.
type changedError struct{ failure *transport.Error }

func (e *changedError) Error() string {
	text := "the hub refused the assignment: "
	if errchain.IsUnasked(e.failure) {
		text = "the hub was not reached: "
	}
	return text + e.failure.Error() + "; the next attempt uses the other key or asks the provisioning service"
}

// Unwrap returns the failure.
func (e *changedError) Unwrap() error { return e.failure }
