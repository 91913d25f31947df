package dpscert

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// maxStep and unsetStep are the longest waits between two looks at the wall clock, which may jump:
	// when it is set, and when it is not.
	maxStep   = time.Hour
	unsetStep = time.Minute
	// replaceBefore is how long before the end of its certificate a session ends at the latest, if
	// there is a newer certificate.
	replaceBefore = time.Minute
	// maxHubFailures is after how many failures of the hub the provisioning service is asked.
	maxHubFailures = 3
)

// errReplaced is why a session ended whose certificate was about to end.
var errReplaced = errors.New("the certificate of the connection ends; the next connection uses a newer one")

// schedule is the state of the renewal, over connections.
type schedule struct {
	pending   *request      // the hub may still answer it
	service   *registration // nil: none is in progress
	useless   int           // chains of the service in a row that were of no use
	notBefore time.Time
	spread    *held // the certificate for which the random wait was drawn

	series      retrypolicy.Operation
	running     bool // series is in use
	attempts    int
	hubFailures int
	hubOut      bool // the hub is not asked
}

// pauseUntil makes the next request wait.
func (r *Renewer) pauseUntil(at time.Time) { r.schedule.notBefore, r.spread = at, r.held() }

// note records the result of a request.
func (r *Renewer) note(err error) {
	r.mu.Lock()
	r.failure = err
	r.mu.Unlock()
}

// untilDue returns the time to the next request, 0 if it is due.
func (r *Renewer) untilDue() time.Duration {
	now, h := r.now(), r.held()
	switch {
	case h == nil || !r.clockSet(now):
		return unsetStep
	case now.Before(h.due):
		return min(h.due.Sub(now), maxStep)
	}
	if !r.running && r.spread != h && now.Sub(h.due) > maxStep { // the device was off at that time
		r.spread = h
		left := min(max(h.cert.Leaf.NotAfter.Sub(now)/20, 1), maxSpread)
		r.guard(func() {
			r.schedule.notBefore = time.Now().Add(time.Duration(r.opt.Rand() % uint64(left)))
		})
	}
	return min(max(time.Until(r.schedule.notBefore), 0), maxStep)
}

// untilReplaced returns the time until the session must end for a newer certificate, 0 if it must
// now.
func (s *session) untilReplaced() time.Duration {
	if s.t.r.held() == s.held {
		return maxStep
	}
	return min(max(s.held.cert.Leaf.NotAfter.Add(-replaceBefore).Sub(s.t.r.now()), 0), maxStep)
}

// renewals requests a certificate whenever that is due, until ctx ends. It calls end if the session
// must end.
func (s *session) renewals(ctx context.Context, end context.CancelCauseFunc) {
	r := s.t.r
	timer := time.NewTimer(min(r.untilDue(), s.untilReplaced()))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.answers:
			r.guard(func() { s.late(ctx, a) })
		case <-s.replies:
		case <-timer.C:
			r.saveAgain(ctx)
			switch {
			case s.untilReplaced() == 0:
				end(errReplaced)
				return
			case r.untilDue() == 0:
				r.guard(func() { s.attempt(ctx) })
			}
		}
		timer.Reset(min(r.untilDue(), s.untilReplaced()))
	}
}

// guard runs f, which calls the policy, Rand or the key. If one of them panics or ends its
// goroutine, the request has failed.
func (r *Renewer) guard(f func()) {
	if failed := callback.Run("Options.Policy, Options.Rand or the key", f); failed != nil {
		r.giveUp(&transport.Error{Kind: transport.Invalid, Op: transport.OpIssue, Err: failed})
	}
}

// late takes an answer that came after its request was given up, or over another connection.
func (s *session) late(ctx context.Context, a answer) {
	before := s.t.r.held()
	if verdict, err := s.take(ctx, a); verdict == final && err == nil && s.t.r.held() != before {
		s.t.r.succeeded(Event{Step: StepRenewed, Attempt: s.t.r.attempts, AtHub: true})
	}
}

// succeeded ends a series of requests. A new certificate whose time of renewal has passed already,
// because it began long ago, is used for two thirds of what is left of its life.
func (r *Renewer) succeeded(e Event) {
	r.note(nil)
	if r.running {
		_ = r.series.Success(time.Now())
	}
	r.running, r.schedule.notBefore = false, time.Time{}
	if h, now := r.held(), r.now(); h != nil && !now.Before(h.due) { // a loop otherwise
		r.pauseUntil(time.Now().Add(h.cert.Leaf.NotAfter.Sub(now) / 3 * 2))
	}
	r.publish(e)
}

// attempt requests a certificate, and decides what follows.
func (s *session) attempt(ctx context.Context) {
	r := s.t.r
	if !r.running {
		r.series, r.running = retrypolicy.Begin(r.opt.Policy, r.clock.Load().Host, time.Now()), true
		r.attempts, r.hubFailures, r.hubOut = 0, 0, r.opt.ServiceOnly || r.clock.Load().ModuleID != ""
	}
	d, err := r.series.Admit(time.Now(), r.opt.Rand())
	switch {
	case err != nil:
		r.giveUp(failureOf(ctx, err))
		return
	case !d.Retry:
		r.giveUp(r.retriesEnded(d.Reason))
		return
	case d.Delay > 0:
		r.schedule.notBefore = time.Now().Add(d.Delay)
		r.publish(Event{Step: StepRetrying, Attempt: r.attempts + 1, Delay: d.Delay})
		return
	}
	r.attempts++
	done := Event{Step: StepRenewed, Attempt: r.attempts}
	done.AtHub, done.Assignment, err = s.request(ctx)
	if err == nil {
		r.succeeded(done)
		return
	}
	failure := failureOf(ctx, err)
	r.note(failure)
	r.recover(ctx, failure)
}

// request asks the hub, or the provisioning service.
func (s *session) request(ctx context.Context) (atHub bool, a *provisioning.Assignment, err error) {
	r := s.t.r
	service := r.opt.Registrar != nil
	if !service || !r.hubOut && r.hubFailures < maxHubFailures {
		if r.hubOut {
			return true, nil, errHubOut
		}
		r.publish(Event{Step: StepRequesting, Attempt: r.attempts, AtHub: true})
		if err = s.fromHub(ctx); err == nil {
			return true, nil, nil
		}
		r.hubFailures++
		if ctx.Err() != nil || !service || errfilter.Of(err).Retry {
			return true, nil, err
		}
		r.hubOut = true
	}
	r.publish(Event{Step: StepRequesting, Attempt: r.attempts})
	a, err = r.fromService(ctx, &transport.Config{})
	return false, a, err
}

var errHubOut = &transport.Error{Kind: transport.Unsupported, Op: transport.OpIssue,
	Err: errors.New("the hub issues no certificates to modules; set Options.Registrar")}

// failureOf returns err as a *transport.Error.
func failureOf(ctx context.Context, err error) *transport.Error {
	if ctx.Err() != nil {
		return &transport.Error{Kind: transport.Network, Op: transport.OpIssue, Err: errEnded}
	}
	if e := transport.Find(err); e != nil {
		own := *e
		own.Err = scrub.Cause(e.Err) // of a callback, it may show a secret
		return &own
	}
	kind := transport.KindOf(err)
	if kind == transport.Unknown {
		kind = transport.Unavailable
	}
	return &transport.Error{Kind: kind, Op: transport.OpIssue, Err: scrub.Cause(err)}
}

var errEnded = errors.New("the connection ended before there was a certificate")

// recover plans the next request after a failure.
func (r *Renewer) recover(ctx context.Context, failure *transport.Error) {
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: failure.Kind, Safe: retrypolicy.SafeYes,
		After: min(max(failure.RetryAfter, 0), times.MaxRetryAfter)}
	if !errfilter.Of(failure).Retry {
		info.Verdict = retrypolicy.VerdictFail
	}
	d, err := r.series.Failure(time.Now(), r.opt.Rand(), info, failure)
	switch {
	case err != nil:
		r.giveUp(failureOf(ctx, err))
		return
	case info.Verdict == retrypolicy.VerdictFail:
		r.giveUp(failure)
		return
	case !d.Retry:
		r.giveUp(r.retriesEnded(d.Reason))
		return
	}
	delay := reconnect.AtLeast(&r.series, max(d.Delay, info.After, 0))
	if reconnect.IsSlow(failure.Kind) { // so that devices that were refused together do not come back together
		delay += time.Duration(r.opt.Rand() % uint64(delay/2+1))
	}
	r.schedule.notBefore = time.Now().Add(delay)
	r.publish(Event{Step: StepRetrying, Attempt: r.attempts + 1, Delay: delay, Err: failure})
}

// giveUp ends a series of requests. A new one begins later: somebody may have removed the cause.
func (r *Renewer) giveUp(failure *transport.Error) {
	r.note(failure)
	_ = callback.Run("Options.Policy", r.series.End) // it may panic, too
	r.running, r.pending, r.service = false, nil, nil
	delay := max(r.opt.TryAgainAfter, min(failure.RetryAfter, times.MaxRetryAfter))
	r.pauseUntil(time.Now().Add(delay))
	r.publish(Event{Step: StepFailed, Attempt: r.attempts, Delay: delay, Err: failure})
}

// retriesEnded returns the error for a policy that allows no further attempt.
func (r *Renewer) retriesEnded(reason retrypolicy.Reason) *transport.Error {
	if reason == retrypolicy.ReasonPolicy {
		reason = retrypolicy.ReasonRejected
	}
	return &transport.Error{Kind: transport.RetryExpired, Op: transport.OpIssue,
		Err: &retrypolicy.Error{Reason: reason, Retries: max(r.attempts-1, 0), Err: r.Status().Err}}
}
