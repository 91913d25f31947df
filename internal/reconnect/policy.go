package reconnect

import (
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// RequestPolicy returns p with delays of at least the one that the service asked for, those of
// MinDelay, and LeastDelay as Policies.Decide has them. If p stops the retries, they stop.
func RequestPolicy(p retrypolicy.Policy) retrypolicy.Policy {
	return retrypolicy.RetryAfter{Max: times.MaxRetryAfter, Policy: paced{p}}
}

// paced is a policy with the delays of MinDelay and LeastDelay.
type paced struct{ policy retrypolicy.Policy }

// Decide returns the policy's decision with the minimum delay.
func (p paced) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return p.decide(p.policy, a) }

func (paced) decide(inner retrypolicy.Policy, a retrypolicy.Attempt) retrypolicy.Decision {
	d := retrypolicy.Decide(inner, a, LeastDelay)
	if d.Retry && IsSlow(a.Kind) {
		d.Delay = max(d.Delay, MinDelay(a))
	}
	return d
}

// Begin begins a series of the policy.
func (p paced) Begin(start retrypolicy.Start) retrypolicy.Series {
	return retrypolicy.Around(p, p.policy, start, paced.decide)
}
