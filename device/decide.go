package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// beginSeries begins a series of the current policies, unless s is one. A series of others ends.
func (l *loop) beginSeries(s *series, scope transport.Scope) {
	set := l.c.policies.Load()
	if s.by == set {
		return
	}
	l.endSeries(s)
	s.by, s.of = set, &set.message
	if scope == transport.ScopeConnection {
		s.of = &set.connection
	}
	l.calls("Begin of the retry policy")
	s.main = s.of.Begin(l.c.creds.Host)
	l.called()
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
	l.called()
	if verdict != retrypolicy.VerdictAgain {
		l.endSeries(s)
	}
}

// endSeries ends a series, if it has begun. What it holds goes back: the price of a retry that was
// not made, the place of an attempt whose end nobody knows.
func (l *loop) endSeries(s *series) {
	if s == nil || s.main == nil {
		return
	}
	over := s.main
	*s = series{}
	l.calls("End of the retry policy")
	over.End()
	l.called()
}

// ask puts q to the current policies, in series s, within the limits of package reconnect. extra is
// added to the delay of a retry.
func (l *loop) ask(q *question, s *series, extra time.Duration) retrypolicy.Decision {
	l.beginSeries(s, q.attempt.Scope)
	q.askedOf = s.by
	a := q.attempt
	a.Now = time.Now() // a new policy may be asked long after the failure
	l.calls("Decide of the retry policy")
	d := s.of.Decide(s.main, &a)
	l.called()
	if d.Retry && d.Delay <= maxDelay-extra {
		d.Delay += extra
	}
	if t := l.c.set.Trace; t != nil && t.Decision != nil {
		l.calls("Trace.Decision")
		t.Decision(a, d)
		l.called()
	}
	return d
}

const maxDelay = time.Duration(1<<63 - 1)
