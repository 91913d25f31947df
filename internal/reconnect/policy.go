package reconnect

import (
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// RequestPolicy returns p with delays of at least the one that the service asked for and those of
// MinDelay. If p stops the retries, they stop.
func RequestPolicy(p retrypolicy.Policy) retrypolicy.Policy {
	return retrypolicy.RetryAfter{Max: times.MaxRetryAfter, Policy: paced{p}}
}

// paced is a policy with the delays of MinDelay.
type paced struct{ policy retrypolicy.Policy }

var (
	_ retrypolicy.Gate       = paced{}
	_ retrypolicy.Observer   = paced{}
	_ retrypolicy.Withdrawer = paced{}
)

// Decide returns the policy's decision with the minimum delay.
func (p paced) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := p.policy.Decide(a)
	if d.Retry && IsSlow(a.Kind) {
		d.Delay = max(d.Delay, MinDelay(a))
	}
	return d
}

// Observe forwards to the policy.
func (p paced) Observe(a retrypolicy.Attempt) { retrypolicy.Observe(p.policy, a) }

// Withdraw forwards to the policy.
func (p paced) Withdraw(a retrypolicy.Attempt) { retrypolicy.Withdraw(p.policy, a) }

// Admit forwards to the policy.
func (p paced) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Admit(p.policy, a)
}
