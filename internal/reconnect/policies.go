package reconnect

import (
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// Policies are a policy and the one that decides in its place about failures of slow pace. Policy
// is asked before every attempt and told of its end. Paced is asked first, and told, only about
// retries that it granted. Neither they nor a Series are a retrypolicy.Stateful, so a program whose
// policies have no memory links none of the code behind that interface.
type Policies struct {
	Policy retrypolicy.Policy
	Paced  retrypolicy.Policy // nil: delays after failures of slow pace are at least MinDelay
}

// Stateful reports whether one of the policies can have memory.
func (p *Policies) Stateful() bool {
	if _, ok := p.Policy.(retrypolicy.Stateful); ok {
		return true
	}
	_, ok := p.Paced.(retrypolicy.Stateful)
	return ok
}

// Begin begins a series. It is nil if the policies have nothing to remember.
func (p *Policies) Begin(key string) *Series {
	start := retrypolicy.Start{Key: key}
	policy, paced := retrypolicy.BeginSeries(p.Policy, start), retrypolicy.BeginSeries(p.Paced, start)
	if policy == nil && paced == nil {
		return nil
	}
	return &Series{policy: policy, paced: paced}
}

// Decide asks the policies in a series, or nil. The delay is at least what the service asked for,
// from the second retry on LeastDelay, and after failures of slow pace at least MinDelay unless
// there is a Paced.
func (p *Policies) Decide(s *Series, a *retrypolicy.Attempt) retrypolicy.Decision {
	slow := IsSlow(a.Kind)
	paced := slow && p.Paced != nil
	asked := p.Policy
	if paced {
		asked = p.Paced
	}
	if s != nil {
		s.granted = paced
		if paced && s.paced != nil {
			asked = s.paced
		} else if !paced && s.policy != nil {
			asked = s.policy
		}
	}
	d := retrypolicy.Decide(asked, *a, LeastDelay)
	if !d.Retry {
		return d
	}
	if slow && !paced {
		d.Delay = max(d.Delay, MinDelay(*a))
	}
	d.Delay = max(d.Delay, min(a.After, times.MaxRetryAfter))
	return d
}

// Series is what policies remember of one outage, message or call. Its methods are those of
// retrypolicy.Series.
type Series struct {
	policy, paced retrypolicy.Series // nil: no memory
	granted       bool               // Paced granted the next retry, and has not admitted it
	admitted      bool               // Paced admitted the attempt that begins or runs
	held          bool               // the attempt asked about last was delayed
}

// Admit asks whether an attempt may begin, see retrypolicy.Admit.
func (s *Series) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	d := retrypolicy.Decision{Retry: true}
	if s.granted && s.paced != nil {
		d = retrypolicy.Admit(s.paced, a, &s.held)
	}
	if d.Retry && d.Delay <= 0 {
		s.admitted, s.granted = s.admitted || s.granted, false
		if s.policy != nil {
			d = retrypolicy.Admit(s.policy, a, &s.held)
		}
	}
	return d
}

// Report reports the end of an attempt.
func (s *Series) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if s.policy != nil {
		s.policy.Report(v, a)
	}
	if s.admitted && s.paced != nil {
		s.paced.Report(v, a)
	}
	s.granted, s.admitted = false, false
}

// End ends the series.
func (s *Series) End() {
	for _, series := range [...]retrypolicy.Series{s.policy, s.paced} {
		if series != nil {
			series.End()
		}
	}
}
