package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// policies is the set of current retry policies. A value is immutable; SetRetryPolicy replaces it.
type policies struct {
	connection, message retrypolicy.Policy
	paced               retrypolicy.Policy // nil: the others, with delays of reconnect.MinDelay
	apart               bool               // the message policy was set on its own
}

// withConnection returns p with another connection policy. The message policy follows it unless it
// was set apart.
func (p policies) withConnection(to retrypolicy.Policy) policies {
	p.connection = to
	if !p.apart {
		p.message = to
	}
	return p
}

// withMessage returns p with another message policy; nil follows the connection policy.
func (p policies) withMessage(to retrypolicy.Policy) policies {
	p.message, p.apart = to, to != nil
	if !p.apart {
		p.message = p.connection
	}
	return p
}

// series is what the policies remember of one outage, message or call. Only the loop uses it. The
// zero series has not begun.
type series struct {
	by       *policies          // whose it is; nil: not begun, or ended
	main     retrypolicy.Series // nil: the policy has no memory
	paced    retrypolicy.Series // of PacedPolicy, from its first decision on
	inFlight bool               // main admitted an attempt whose end was not reported
}

// begin begins a series of the current policies, unless s is one. A series of others ends.
func (l *loop) beginSeries(s *series, scope transport.Scope) {
	set := l.c.policies.Load()
	if s.by == set {
		return
	}
	l.endSeries(s)
	s.by = set
	p := set.message
	if scope == transport.ScopeConnection {
		p = set.connection
	}
	s.main = l.newSeries(p)
}

// newSeries begins a series of p. The interface is checked here, so that a program without a policy
// with memory links none of the code behind it.
func (l *loop) newSeries(p retrypolicy.Policy) (s retrypolicy.Series) {
	if stateful, ok := p.(retrypolicy.Stateful); ok {
		l.calls("Begin of the retry policy")
		s = stateful.Begin(retrypolicy.Start{Key: l.c.creds.Host})
		l.called()
	}
	return s
}

// admit asks whether an attempt may begin. It is the only place that asks.
func (l *loop) admit(s *series, a retrypolicy.Attempt) retrypolicy.Decision {
	l.calls("Admit of the retry policy")
	d := s.main.Admit(a)
	l.called()
	s.inFlight = d.Retry && d.Delay <= 0
	return d
}

// report reports the end of an attempt that was admitted; nil is a success. It is the only place
// that reports.
func (l *loop) report(s *series, a retrypolicy.Attempt, failure *transport.Error) {
	if !s.inFlight {
		return
	}
	s.inFlight = false
	verdict := retrypolicy.VerdictSucceed
	if failure != nil {
		describe(&a, failure)
		verdict = retrypolicy.VerdictFail
		if errfilter.Retryable(failure) {
			verdict = retrypolicy.VerdictAgain
		}
	}
	l.calls("Report of the retry policy")
	s.main.Report(verdict, a)
	if s.paced != nil {
		s.paced.Report(verdict, a)
	}
	l.called()
	if verdict != retrypolicy.VerdictAgain {
		l.endSeries(s)
	}
}

// decide asks the policy responsible for a, within the limits of package reconnect.
func (l *loop) decide(s *series, a retrypolicy.Attempt) retrypolicy.Decision {
	p, remembered := reconnect.Of(s.by.connection, s.by.message, s.by.paced, &a), s.main
	if s.by.paced != nil && reconnect.IsSlow(a.Kind) {
		if s.paced == nil {
			s.paced = l.newSeries(p)
		}
		remembered = s.paced
	}
	if remembered != nil {
		p = remembered
	}
	l.calls("Decide of the retry policy")
	d := reconnect.Decide(p, s.by.paced != nil, &a)
	l.called()
	return d
}

// endSeries ends a series, if it has begun. What it holds goes back: the price of a retry that was
// not made, the place of an attempt whose end nobody knows.
func (l *loop) endSeries(s *series) {
	if s == nil || s.main == nil && s.paced == nil {
		return
	}
	over := *s
	*s = series{}
	l.calls("End of the retry policy")
	if over.main != nil {
		over.main.End()
	}
	if over.paced != nil {
		over.paced.End()
	}
	l.called()
}

// question is a failure put to a policy. It is kept so that it can be asked again.
type question struct {
	attempt retrypolicy.Attempt
	failure *transport.Error
	began   time.Time
	paid    time.Duration // what counts toward the delay of a connection, see down
	askedOf *policies
}

// attempt returns an Attempt about scope at this moment; the caller adds the failure.
func (l *loop) attempt(scope transport.Scope, retry int, now time.Time) retrypolicy.Attempt {
	return retrypolicy.Attempt{Retry: retry, Scope: scope, Now: now}
}

// describe adds a failure to an Attempt.
func describe(a *retrypolicy.Attempt, failure *transport.Error) {
	a.Err, a.Kind, a.After = failure, failure.Kind, failure.RetryAfter
}

// retriesEnded is the error when a policy or OutageLimit ended the retries after cause, with
// reason.
func retriesEnded(cause *transport.Error, reason retrypolicy.Reason, retries int) *transport.Error {
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: cause.Scope, Op: cause.Op, Proto: cause.Proto, RetryAfter: cause.RetryAfter,
		Err: &retrypolicy.Error{Reason: reason, Retries: retries, Err: cause},
	}
}

// refusedTry is the error when a policy refuses an attempt before it begins. cause is the preceding
// failure, nil for a first attempt.
func refusedTry(scope transport.Scope, op transport.Op, d retrypolicy.Decision, retries int,
	cause error) *transport.Error {
	if d.Reason == retrypolicy.ReasonPolicy {
		d.Reason = retrypolicy.ReasonRejected
	}
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: scope, Op: op, Err: &retrypolicy.Error{Reason: d.Reason, Retries: retries,
			Err: cause},
	}
}

// reportOutcomes reports to the series of messages how they ended.
func (l *loop) reportOutcomes(now time.Time) {
	seen := l.c.queue.collect()
	for _, o := range seen {
		if o.ended {
			l.report(o.series, l.attempt(transport.ScopeOperation, o.retry, now), o.err)
		}
		if o.over {
			l.endSeries(o.series)
		}
	}
	clear(seen)
}

// reportAttempt reports once to the connection policy how the latest attempt to connect ended.
func (l *loop) reportAttempt(failure *transport.Error, now time.Time) {
	a := l.attempt(transport.ScopeConnection, l.outage.retry, now)
	a.Elapsed = now.Sub(l.outage.since)
	l.report(&l.outage.series, a, failure)
}

// repeated lists the operations that the client repeats by itself when their outcome is unknown,
// because the connection ended or the answer timed out. Other operations fail, and the caller
// decides.
var repeated = [...]bool{
	transport.OpSend:    true, // at least once; consumers detect duplicates by message id
	transport.OpTwinGet: true, // changes nothing
	// The patch sets values, and later calls are applied after it. A patch with an expected version is
	// not repeated, because the first try may have used that version up.
	transport.OpTwinPatch: true,
	transport.OpSubscribe: true,  // by each new session
	transport.OpRenew:     false, // a new session has a new token
	transport.OpRespond:   false, // the hub has given up the call
	transport.OpSettle:    false, // the hub delivers the message again
	transport.OpPing:      false,
	transport.OpIssue:     false, // package dpscert repeats it
}

// repeats reports whether r is done again after an unknown outcome.
func repeats(r *transport.Request) bool {
	return repeated[r.Op] && !(r.Op == transport.OpTwinPatch && r.Version != 0)
}
