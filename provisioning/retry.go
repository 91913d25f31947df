package provisioning

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// decide decides what follows a failure: the wait before the next attempt, or the error of
// Register.
func (r *registration) decide(failure *transport.Error) (retry Event, err error) {
	now := time.Now()
	if r.ctx.Err() != nil {
		return Event{}, r.abandon(r.cancelled())
	}
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: failure.Kind, Safe: retrypolicy.SafeYes,
		After: min(failure.RetryAfter, times.MaxRetryAfter)}
	slow := reconnect.IsSlow(failure.Kind)
	if !errfilter.Of(failure).Retry {
		switch {
		case failure.Kind == transport.NotFound && r.operation != "":
			r.operation = "" // the service forgot the operation
		case r.challengeAgain(failure):
			r.operation = ""
		case r.otherKey(failure): // the attempt had changed its key before
		case failure.Kind == transport.NotFound && r.c.opt.AwaitEnrollment && notEnrolled(failure):
			slow = true
		case failure.Kind == transport.Conflict && !r.conflict: // another register may read another state
			r.conflict, r.operation = true, ""
		default:
			info.Verdict = retrypolicy.VerdictFail
		}
	}
	draw := r.rand()
	d, err := r.series.Failure(now, draw, info, failure)
	switch {
	case err != nil:
		return Event{}, err
	case info.Verdict == retrypolicy.VerdictFail:
		return Event{}, failure
	case !d.Retry:
		return Event{}, r.retriesEnded(d.Reason)
	}
	delay := reconnect.AtLeast(&r.series, times.Cap(max(d.Delay, info.After, 0)))
	if slow && r.c.paced {
		delay = max(delay, reconnect.MinDelay(retrypolicy.Attempt{Retry: r.attempt, Rand: draw}))
	}
	if slow {
		delay += r.stagger(delay, failure.Kind)
	}
	return Event{Step: StepRetrying, Attempt: r.attempt + 1, Delay: delay, Err: failure}, nil
}

// stagger returns a random addition to a long delay; see reconnect.Stagger.
func (r *registration) stagger(delay time.Duration, kind transport.Kind) time.Duration {
	throttled := kind == transport.Throttled && r.operation == "" && r.c.paced
	again := r.throttled
	r.throttled = again || throttled
	return reconnect.Stagger(delay, throttled, again, r.rand())
}

// notEnrolled reports whether the service does not know the enrollment.
func notEnrolled(failure *transport.Error) bool {
	return errchain.Any(failure.Err, func(err error) bool {
		e, ok := err.(*transport.StatusError)
		return ok && e.Code == codeNotEnrolled
	})
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
