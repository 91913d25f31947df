package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

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
	d := retrypolicy.Admit(s.main, a, &s.held)
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

// ask puts q to the current policies, in series s. extra is added to the delay of a retry.
func (l *loop) ask(q *question, s *series, extra time.Duration) retrypolicy.Decision {
	l.beginSeries(s, q.attempt.Scope)
	q.askedOf = s.by
	d := l.decide(s, q.attempt)
	if d.Retry && d.Delay <= maxDelay-extra {
		d.Delay += extra
	}
	if t := l.c.set.Trace; t != nil && t.Decision != nil {
		l.calls("Trace.Decision")
		t.Decision(q.attempt, d)
		l.called()
	}
	return d
}

const maxDelay = time.Duration(1<<63 - 1)
