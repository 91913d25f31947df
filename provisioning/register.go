package provisioning

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/pacing"
	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/transport"
)

// A registration is one call of Register. One goroutine uses it.
type registration struct {
	c    *Client
	ctx  context.Context
	rand func() uint64

	session Session   // nil: none is open
	renew   time.Time // when the session's token is too old; zero: never
	signed  time.Time // the wall clock when the latest token was signed
	expires time.Time // of the latest token

	series    retrypolicy.Series
	attempt   int // number of the attempt
	damage    errfilter.Damage
	operation string    // empty: there is none to poll
	since     time.Time // when the operation began
	unnamed   int       // answers without an operation to poll
	second    bool      // the second key signs
	refused   int       // keys refused since the last answer
	corrected int       // the latest attempt whose token was replaced because the clock was corrected
	throttled bool      // a register was throttled since the last answer
	conflict  bool      // a conflict was repeated
	last      error     // the latest failure
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
	maxWork = 2 * retryafter.Max
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

// next makes one attempt. Without an assignment and an error, retry describes the wait before the
// next attempt.
func (r *registration) next() (a *Assignment, retry Event, err error) {
	if r.attempt == 0 {
		if err := r.spread(); err != nil {
			return nil, Event{}, err
		}
		r.series = retrypolicy.Begin(r.c.opt.Policy, r.c.id.Endpoint, time.Now())
	}
	deadline, _ := r.ctx.Deadline()
	r.series.Bound(deadline)
	if err := r.admit(); err != nil {
		return nil, Event{}, err
	}
	r.attempt++
	a, failure := r.try()
	if failure == nil {
		return a, Event{}, r.series.Success(time.Now())
	}
	retry, err = r.decide(failure)
	return nil, retry, err
}

// spread waits a random time before the first request.
func (r *registration) spread() error {
	if r.c.opt.Spread <= 0 {
		return nil
	}
	d := time.Duration(r.rand() % uint64(r.c.opt.Spread))
	return r.wait(Event{Step: Spreading, Attempt: 1, Delay: d})
}

// admit waits until the policy's gates let an attempt begin.
func (r *registration) admit() error {
	for {
		d, err := r.series.Admit(time.Now(), r.rand())
		switch {
		case err != nil:
			return err
		case !d.Retry:
			if d.Reason == retrypolicy.ByPolicy {
				d.Reason = retrypolicy.Rejected
			}
			return r.retriesEnded(d.Reason)
		case d.Delay <= 0:
			return nil
		}
		if err := r.wait(Event{Step: Retrying, Attempt: r.attempt + 1, Delay: d.Delay, Err: r.last}); err != nil {
			return r.abandon(err)
		}
	}
}

// try registers, or goes on with the operation, until there is an assignment or a failure. It tries
// the other key by itself.
func (r *registration) try() (*Assignment, *transport.Error) {
	for {
		answer, failure := r.step()
		switch {
		case failure != nil && (r.otherToken(failure) || r.otherKey(failure)):
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
		if err := r.wait(Event{Step: Assigning, Attempt: r.attempt, Delay: delay}); err != nil {
			return nil, transport.Find(err)
		}
	}
}

// step makes one exchange and interprets the answer.
func (r *registration) step() (reading, *transport.Error) {
	if err := r.ctx.Err(); err != nil {
		return reading{}, r.cancelled()
	}
	request, event := &Request{Body: r.c.body}, Event{Step: Registering, Attempt: r.attempt}
	if r.operation != "" {
		request, event.Step = &Request{Operation: r.operation}, Polling
	}
	r.publish(event)
	answer, err := r.exchange(request)
	if err == nil {
		var got reading
		if got, err = read(answer); err == nil {
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
	if r.session != nil && !r.renew.IsZero() && !time.Now().Before(r.renew) {
		r.closeSession()
	}
	if r.session == nil {
		if err := r.open(); err != nil {
			return nil, err
		}
	}
	var answer *Answer
	var err error
	if failed := callback.Run("Session.Exchange",
		func() { answer, err = r.session.Exchange(r.ctx, request) }); failed != nil {
		err = failed
	}
	if err != nil {
		r.closeSession()
	}
	return answer, err
}

// open signs a token and opens a session with it.
func (r *registration) open() error {
	l := &Login{Endpoint: r.c.id.Endpoint, IDScope: r.c.id.IDScope, RegistrationID: r.c.id.RegistrationID,
		APIVersion: r.c.version, Timeout: r.c.opt.RequestTimeout, Now: r.c.now}
	if done, err := r.openTPM(l); done {
		return err
	}
	if err := r.sign(l); err != nil {
		return err
	}
	var err error
	if failed := callback.Run("Carrier.Open",
		func() { r.session, err = r.c.carrier.Open(r.ctx, l) }); failed != nil {
		err = failed
	}
	if err != nil {
		r.session = nil
	}
	return err
}

// now returns the wall clock: the device's, or the service's if that replaces it. It has no
// monotonic reading.
func (c *Client) now() time.Time {
	if c.keeper != nil {
		return c.keeper.TokenTime(c.clock()).Round(0)
	}
	return c.clock().Time()
}

// clock returns credentials that have the device's clock.
func (c *Client) clock() *transport.Credentials {
	return &transport.Credentials{Now: c.id.Now, Earliest: c.id.Earliest}
}

// clockSet is the earliest time at which tokens are signed, 2000-01-01.
const clockSet = 946684800

// sign makes the login's token.
func (r *registration) sign(l *Login) error {
	id := &r.c.id
	sign := id.signer(r.second)
	if sign == nil {
		return nil
	}
	if err := r.readClock(l); err != nil {
		return err
	}
	token, err := r.c.token(r.ctx, sign, l.Resource(), r.signed.Add(id.TokenLife))
	if err != nil {
		return err
	}
	l.Token, r.expires, r.renew = token, token.Expires, time.Now().Add(id.TokenLife-renewBefore)
	return nil
}

// readClock notes when the login is signed. If the clock is not set, it asks the service for the
// time.
func (r *registration) readClock(l *Login) error {
	r.signed = r.c.now()
	if r.signed.Unix() < clockSet && r.c.keeper != nil {
		if err := r.askTime(l); err != nil {
			return err
		}
		r.signed = r.c.now()
	}
	if r.signed.Unix() < clockSet {
		return &transport.Error{Kind: transport.ClockUnset, Scope: transport.Connection, Op: transport.OpRegister,
			Err: errors.New("set the clock before registering" + hint(": a token has an expiry time"))}
	}
	return nil
}

// token returns a token that sign has signed.
func (c *Client) token(ctx context.Context, sign func(context.Context, []byte) ([]byte, error), resource string,
	expires time.Time) (transport.Token, error) {
	caught := func(ctx context.Context, text []byte) (mac []byte, err error) {
		if failed := callback.Run("Identity.Sign", func() { mac, err = sign(ctx, text) }); failed != nil {
			return nil, failed
		}
		return mac, err
	}
	token, err := transport.SignToken(ctx, caught, resource, "registration", expires)
	if err != nil {
		kind := transport.KindOf(err)
		if kind == transport.Unknown {
			kind = transport.Unauthorized
		}
		return transport.Token{}, &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpRegister,
			Err: &signError{err}}
	}
	return token, nil
}

// askTime asks the service for its time, by which a token can be signed.
func (r *registration) askTime(l *Login) error {
	var err error
	if failed := callback.Run("Carrier.AskTime", func() { err = r.c.keeper.AskTime(r.ctx, l) }); failed != nil {
		return failed
	}
	return err
}

// signError marks the error of a key that did not sign: no token was refused.
type signError struct{ err error }

func (e *signError) Error() string { return "the key did not sign: " + e.err.Error() }
func (e *signError) Unwrap() error { return e.err }

func isSignError(err error) bool {
	_, ok := err.(*signError)
	return ok
}

func (r *registration) closeSession() {
	if s := r.session; s != nil {
		r.session = nil
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
		e = &transport.Error{Kind: kind, Scope: transport.Connection, Err: err}
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
	r.last = &own
	return &own
}

// keys returns the number of keys.
func (r *registration) keys() int {
	switch {
	case r.c.id.SecondSign != nil:
		return 2
	case r.c.id.Sign != nil:
		return 1
	}
	return 0
}

// clockAtFault reports whether a refused token may be due to a clock that is not set, or is known
// to be behind by more than the life of a token.
func (r *registration) clockAtFault(failure *transport.Error) bool {
	unset := r.c.clock().Implausible(r.signed) ||
		r.c.keeper != nil && r.c.keeper.Outlived(transport.Token{Expires: r.expires})
	return unset && !isLocal(failure)
}

// otherToken reports whether failure is the refusal of a token that would be made by another time
// now, because an answer has told the service's. That is tried once in an attempt.
func (r *registration) otherToken(failure *transport.Error) bool {
	if r.c.keeper == nil || r.corrected == r.attempt || r.keys() == 0 ||
		failure.Kind != transport.Unauthorized && failure.Kind != transport.ClockUnset ||
		!r.c.keeper.Corrected(r.c.clock(), r.signed) {
		return false
	}
	r.corrected = r.attempt
	r.closeSession()
	r.publish(Event{Step: ClockCorrected, Attempt: r.attempt, Err: failure})
	return true
}

// isLocal reports whether failure is that of a key that did not sign.
func isLocal(failure *transport.Error) bool { return errchain.Any(failure, isSignError) }

// otherKey reports whether failure is the refusal of a key, and the other key was not refused yet.
// That key is used from then on.
func (r *registration) otherKey(failure *transport.Error) bool {
	if failure.Kind != transport.Unauthorized || r.refused+1 >= r.keys() {
		return false
	}
	r.refused++
	r.second = !r.second
	r.closeSession()
	r.publish(Event{Step: OtherKey, Attempt: r.attempt, Err: failure})
	return true
}

// decide decides what follows a failure: the wait before the next attempt, or the error of
// Register.
func (r *registration) decide(failure *transport.Error) (retry Event, err error) {
	now := time.Now()
	if r.ctx.Err() != nil {
		return Event{}, r.abandon(failure)
	}
	info := classify.Info{Verdict: classify.Again, Kind: failure.Kind, Safe: classify.SafeYes,
		After: min(failure.RetryAfter, retryafter.Max)}
	slow := pacing.IsSlow(failure.Kind)
	if !errfilter.Of(failure).Retry {
		switch {
		case failure.Kind == transport.NotFound && r.operation != "":
			r.operation = "" // the service forgot the operation
		case r.challengeAgain(failure):
			r.operation = ""
		case failure.Kind == transport.NotFound && r.c.opt.AwaitEnrollment && notEnrolled(failure):
			slow = true
		case failure.Kind == transport.Conflict && !r.conflict: // another register may read another state
			r.conflict, r.operation = true, ""
		default:
			info.Verdict = classify.Fail
		}
	}
	draw := r.rand()
	d, err := r.series.Failure(now, draw, info, failure)
	switch {
	case err != nil:
		return Event{}, err
	case info.Verdict == classify.Fail:
		return Event{}, failure
	case !d.Retry:
		return Event{}, r.retriesEnded(d.Reason)
	}
	delay := timespan.Cap(max(d.Delay, info.After, 0))
	if slow && r.c.paced {
		delay = max(delay, pacing.MinDelay(retrypolicy.Attempt{Retry: r.attempt, Rand: draw}))
	}
	if slow {
		delay += r.stagger(delay, failure.Kind)
	}
	return Event{Step: Retrying, Attempt: r.attempt + 1, Delay: delay, Err: failure}, nil
}

// stagger returns a random addition to a long delay, so that devices that were refused together do
// not come back together. The service counts registers by the minute: with the default policy, a
// throttled register comes back within a minute more, and if that was too early for the size of the
// fleet, within three.
func (r *registration) stagger(delay time.Duration, kind transport.Kind) time.Duration {
	most := delay / 2
	if kind == transport.Throttled && r.operation == "" && r.c.paced {
		within := time.Minute
		if r.throttled {
			within = 3 * time.Minute
		}
		most, r.throttled = max(most, within), true
	}
	return time.Duration(r.rand() % uint64(most+1))
}

// notEnrolled reports whether the service does not know the enrollment.
func notEnrolled(failure *transport.Error) bool {
	e, ok := failure.Err.(*transport.StatusError)
	return ok && e.Code == codeNotEnrolled
}

// wait publishes e and waits for its delay. The error is that of an ended context.
func (r *registration) wait(e Event) error {
	r.publish(e)
	if e.Delay > maxIdle {
		r.closeSession()
	}
	over := make(chan struct{}, 1)
	t := time.AfterFunc(e.Delay, func() { over <- struct{}{} }) // time.NewTimer links 5 KB more on boards
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
	_ = r.series.Abandon(time.Now(), err)
	return err
}

// retriesEnded returns the error for a policy that allows no further attempt.
func (r *registration) retriesEnded(reason retrypolicy.Reason) *transport.Error {
	e := &transport.Error{Kind: transport.RetryExpired, Op: transport.OpRegister,
		Err: &retrypolicy.Error{Reason: reason, Retries: max(r.attempt-1, 0), Err: r.last}}
	if last := transport.Find(r.last); last != nil {
		e.Scope, e.Proto, e.RetryAfter = last.Scope, last.Proto, last.RetryAfter
	}
	return e
}

// cancelled returns the error for the end of the caller's context.
func (r *registration) cancelled() *transport.Error {
	return &transport.Error{Kind: transport.Cancelled, Op: transport.OpRegister,
		Err: &endedError{context.Cause(r.ctx), r.last}}
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
		r.publish(Event{Step: Assigned, Attempt: r.attempt})
		return
	}
	r.publish(Event{Step: Failed, Attempt: r.attempt, Err: err})
}
