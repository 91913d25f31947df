package provisioning

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A registration is one call of Register. One goroutine uses it.
type registration struct {
	c    *Client
	ctx  context.Context
	rand func() uint64

	*line      // that of shared
	holds bool // the turn of shared, and so line

	series    retrypolicy.Operation
	spreaded  bool // the random wait was drawn
	attempt   int  // number of the attempt
	damage    errfilter.Damage
	operation string    // empty: there is none to poll
	since     time.Time // when the operation began
	unnamed   int       // answers without an operation to poll
	refused   int       // keys refused since the last answer
	swapped   int       // the latest attempt that changed its key
	corrected int       // the latest attempt whose token was replaced because the clock was corrected
	throttled bool      // a register was throttled since the last answer
	conflict  bool      // a conflict was repeated
	last      error     // the latest failure
}

// A line is a session with the token that opened it.
type line struct {
	session Session   // nil: none is open
	renew   time.Time // when the session's token is too old; zero: never
	signed  time.Time // the wall clock when the latest token was signed
	expires time.Time // of the latest token
	second  bool      // the second key signs
	version string    // of the API
}

const (
	// maxIdle is the longest wait with an open connection: its keep-alive needs no pings then.
	maxIdle = 30 * time.Second
	// renewBefore is how long before the end of its token a connection is replaced.
	renewBefore = 2 * time.Minute
	// maxUnnamed is the number of answers without an operation after which the policy paces the
	// registers.
	maxUnnamed = 3
	// maxWork is the longest life of an operation. It is more than the longest delay that the service
	// can ask for.
	maxWork = 2 * times.MaxRetryAfter
)

// run makes attempts until one succeeds or a failure is final.
func (r *registration) run() (*Assignment, error) {
	for {
		a, retry, err := r.next()
		if a != nil || err != nil {
			return a, err
		}
		if err := r.wait(retry); err != nil {
			return nil, r.abandon(err)
		}
	}
}

// callbacks are the functions of the user that run guards.
const callbacks = "Options.Policy, Options.Rand or Identity.Now"

// next makes one attempt. Without an assignment and an error, retry describes the wait before the
// next attempt. A callback that panics or ends its goroutine ends the registration.
func (r *registration) next() (a *Assignment, retry Event, err error) {
	if failed := callback.Run(callbacks, func() { a, retry, err = r.attemptOnce() }); failed != nil {
		_ = callback.Run("Options.Policy", r.series.End)
		return nil, Event{}, callbackFailed(failed)
	}
	return a, retry, err
}

// callbackFailed returns the error for a callback that did not return. Its Scope says that it is no
// refusal of a request.
func callbackFailed(failed error) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection, Op: transport.OpRegister,
		Err: failed}
}

func (r *registration) attemptOnce() (a *Assignment, retry Event, err error) {
	if r.attempt == 0 {
		if err := r.hold(r.spread()); err != nil {
			return nil, Event{}, err
		}
		r.series = retrypolicy.Begin(r.c.opt.Policy, r.c.id.Endpoint, time.Now())
	}
	if err := r.admit(); err != nil {
		return nil, Event{}, err
	}
	r.attempt++
	if cancelled := r.take(); cancelled != nil {
		return nil, Event{}, r.abandon(cancelled)
	}
	defer r.give()
	a, failure := r.try()
	if failure == nil {
		err = r.series.Success(time.Now())
	} else {
		retry, err = r.decide(failure)
	}
	return a, retry, err
}

// spread returns the random wait before the first request, once.
func (r *registration) spread() time.Duration {
	if r.c.opt.Spread <= 0 || r.spreaded {
		return 0
	}
	r.spreaded = true
	d := time.Duration(r.rand() % uint64(r.c.opt.Spread))
	r.publish(Event{Step: StepSpreading, Attempt: 1, Delay: d})
	return d
}

// admit waits until the policy lets an attempt begin.
func (r *registration) admit() error {
	for {
		d, err := r.series.Admit(time.Now(), r.rand())
		switch {
		case err != nil:
			return err
		case !d.Retry:
			if d.Reason == retrypolicy.ReasonPolicy {
				d.Reason = retrypolicy.ReasonRejected
			}
			return r.retriesEnded(d.Reason)
		case d.Delay <= 0:
			return nil
		}
		if err := r.wait(Event{Step: StepRetrying, Attempt: r.attempt + 1, Delay: d.Delay, Err: r.last}); err != nil {
			return r.abandon(err)
		}
	}
}

// try registers, or goes on with the operation, until there is an assignment or a failure. It tries
// the other key by itself, once: a service that accepts and refuses each key in turn is for the
// policy.
func (r *registration) try() (*Assignment, *transport.Error) {
	for {
		answer, failure := r.step()
		switch {
		case failure != nil && r.otherProof(failure):
			continue
		case failure != nil:
			return nil, failure
		case answer.assignment != nil:
			answer.assignment.SecondKey = r.second
			return answer.assignment, nil
		}
		switch {
		case answer.operation != "":
			if r.operation == "" {
				r.since = time.Now()
			}
			r.operation = answer.operation
		case r.operation == "": // the next step registers again
			if r.unnamed++; r.unnamed > maxUnnamed {
				return nil, r.judge(violation("the answers name no operation to poll"))
			}
		}
		if r.operation != "" && time.Since(r.since) > maxWork {
			r.operation = ""
			return nil, r.judge(&transport.Error{Kind: transport.Timeout, Op: transport.OpRegister,
				Err: errors.New(service + ": no result after two hours")})
		}
		delay := max(r.c.opt.PollInterval, answer.after)
		if err := r.wait(Event{Step: StepAssigning, Attempt: r.attempt, Delay: delay}); err != nil {
			return nil, transport.Find(err)
		}
	}
}

// step makes one exchange and interprets the answer.
func (r *registration) step() (reading, *transport.Error) {
	if err := r.ctx.Err(); err != nil {
		return reading{}, r.cancelled()
	}
	if hold := r.c.shared.hold; hold != nil && r.operation == "" {
		if err := hold(r); err != nil {
			return reading{}, r.judge(err)
		}
	}
	request, event := &Request{Body: r.c.body}, Event{Step: StepRegistering, Attempt: r.attempt}
	if r.operation != "" {
		request, event.Step = &Request{Operation: r.operation}, StepPolling
	}
	r.publish(event)
	answer, err := r.exchange(request)
	if err == nil {
		var got reading
		if got, err = read(answer, r.c.opt.MQTTv5); err == nil {
			err = r.activateAssigned(answer, &got)
		}
		if err == nil {
			r.refused, r.throttled, r.damage = 0, false, errfilter.Damage{}
			return got, nil
		}
		if got.over {
			r.operation = ""
		}
	}
	return reading{}, r.judge(err)
}

// exchange sends a request over the open session, or over a new one.
func (r *registration) exchange(request *Request) (*Answer, error) {
	if err := r.ready(); err != nil {
		return nil, err
	}
	var answer *Answer
	err := callback.Call("Session.Exchange", func() (err error) {
		answer, err = r.session.Exchange(r.ctx, request)
		return err
	})
	if err != nil {
		r.closeSession()
	}
	return answer, err
}

// ready opens a session if there is none, or one whose token is too old or whose API is another.
func (r *registration) ready() error {
	if r.session != nil && (!r.renew.IsZero() && !time.Now().Before(r.renew) || r.version != r.c.version) {
		r.closeSession()
	}
	if r.session != nil {
		return nil
	}
	return r.open()
}

// open signs a token and opens a session with it.
func (r *registration) open() error {
	l := &Login{Endpoint: r.c.id.Endpoint, IDScope: r.c.id.IDScope, RegistrationID: r.c.id.RegistrationID,
		APIVersion: r.c.version, Timeout: r.c.opt.RequestTimeout, Now: r.c.now}
	r.version = l.APIVersion
	if done, err := r.openTPM(l); done {
		return err
	}
	if err := r.sign(l); err != nil {
		return err
	}
	err := callback.Call("Carrier.Open", func() (err error) {
		r.session, err = r.c.carrier.Open(r.ctx, l)
		return err
	})
	if err != nil {
		r.session = nil
	}
	return err
}

func (e *signError) Error() string { return "the key did not sign: " + e.err.Error() }
func (e *signError) Unwrap() error { return e.err }

func (l *line) closeSession() {
	if s := l.session; s != nil {
		l.session = nil
		_ = callback.Run("Session.Close", s.Close)
	}
}

// judge returns err as the loop sees it: as an error of a registration, and with the Kind that its
// circumstances give it.
func (r *registration) judge(err error) *transport.Error {
	if r.ctx.Err() != nil {
		return r.cancelled()
	}
	e := transport.Find(r.damage.Judge(err))
	if e == nil {
		kind := transport.KindOf(err)
		if kind == transport.Unknown {
			kind = transport.Network
		}
		e = &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Err: err}
	}
	own := *e
	own.Op = transport.OpRegister
	if own.Kind == transport.Unauthorized {
		r.closeSession() // over HTTPS an answer refuses the token
	}
	switch {
	case errfilter.Of(&own).Kind == transport.Cancelled:
		// a context of the carrier or of a callback ended, not the caller's
		own.Kind, own.Err = transport.Timeout, errors.New(e.Error())
	case own.Kind == transport.Unauthorized && r.keys() > 0 && r.refused+1 >= r.keys() && r.clockAtFault(&own):
		own.Kind = transport.ClockUnset
		r.refused = 0
	}
	own.Err = scrub.Cause(own.Err) // of a callback, it may show a secret
	r.last = &own
	return &own
}

// wait publishes e and waits for its delay. The error is that of an ended context.
func (r *registration) wait(e Event) error {
	r.publish(e)
	if e.Delay > maxIdle {
		if r.holds {
			r.closeSession()
		}
		r.c.shared.closeIdle()
	}
	return r.hold(e.Delay)
}

// hold waits. The error is that of an ended context.
func (r *registration) hold(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	over := make(chan struct{}, 1)
	t := time.AfterFunc(d, func() { over <- struct{}{} }) // time.NewTimer links 5 KB more on boards
	select {
	case <-over:
		return nil
	case <-r.ctx.Done():
		t.Stop()
		return r.cancelled()
	}
}

// abandon ends the series because the caller's context ended, and returns err.
func (r *registration) abandon(err error) error {
	r.series.End()
	return err
}

// cancelled returns the error for the end of the caller's context.
func (r *registration) cancelled() *transport.Error {
	return &transport.Error{Kind: transport.Cancelled, Op: transport.OpRegister,
		Err: &endedError{lifetime.Cause(r.ctx), r.last}}
}

// endedError is the end of the caller's context. Its text says what the registration waited for.
type endedError struct{ cause, last error }

func (e *endedError) Error() string {
	if e.last == nil {
		return e.cause.Error()
	}
	return e.cause.Error() + "; the latest failure: " + e.last.Error()
}

// Unwrap returns the context's cause.
func (e *endedError) Unwrap() error { return e.cause }

// end publishes the last step.
func (r *registration) end(err error) {
	if err == nil {
		r.publish(Event{Step: StepAssigned, Attempt: r.attempt})
		return
	}
	r.publish(Event{Step: StepFailed, Attempt: r.attempt, Err: err})
}
