package reconnect

import "github.com/hubline-iot/hubline/retrypolicy"

// WithPaced returns the policy whose failures of slow pace paced decides about. paced may be nil.
//
// The policy is asked before every attempt and told of its end. paced is asked first, and told,
// only about retries that it granted.
func WithPaced(policy, paced retrypolicy.Policy) retrypolicy.Policy {
	if paced == nil {
		return policy
	}
	return byPace{policy, paced}
}

type byPace struct{ policy, paced retrypolicy.Policy }

func (p byPace) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if IsSlow(a.Kind) {
		return p.paced.Decide(a)
	}
	return p.policy.Decide(a)
}

// Begin begins a series if one of the policies has memory.
func (p byPace) Begin(start retrypolicy.Start) retrypolicy.Series {
	policy, paced := retrypolicy.BeginSeries(p.policy, start), retrypolicy.BeginSeries(p.paced, start)
	if policy == nil && paced == nil {
		return nil
	}
	if policy == nil {
		policy = retrypolicy.Inner(p.policy, start)
	}
	if paced == nil {
		paced = retrypolicy.Inner(p.paced, start)
	}
	return &byPaceSeries{policy: policy, paced: paced}
}

type byPaceSeries struct {
	policy, paced retrypolicy.Series
	granted       bool // paced granted the next retry, and has not admitted it
	admitted      bool // paced admitted the attempt that begins or runs
}

func (s *byPaceSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if s.granted = IsSlow(a.Kind); s.granted {
		return s.paced.Decide(a)
	}
	return s.policy.Decide(a)
}

func (s *byPaceSeries) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if s.granted {
		if d := s.paced.Admit(a); !d.Retry || d.Delay > 0 {
			return d
		}
		s.granted, s.admitted = false, true
	}
	return s.policy.Admit(a)
}

func (s *byPaceSeries) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	s.policy.Report(v, a)
	if s.admitted {
		s.paced.Report(v, a)
	}
	s.granted, s.admitted = false, false
}

func (s *byPaceSeries) End() {
	s.policy.End()
	s.paced.End()
}
