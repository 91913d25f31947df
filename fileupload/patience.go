package fileupload

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// maxRetryAfter is the longest wait that a service can ask for.
const maxRetryAfter = time.Hour

// patient makes the delays of a policy as long as the service asked for, and as patience demands. A
// veto of the policy's stays one.
func patient(p retrypolicy.Policy) retrypolicy.Policy {
	return retrypolicy.RetryAfter{Max: maxRetryAfter, Policy: paced{p}}
}

// paced is a policy with a least delay after failures that ask for patience.
type paced struct{ policy retrypolicy.Policy }

var (
	_ retrypolicy.Gate       = paced{}
	_ retrypolicy.Observer   = paced{}
	_ retrypolicy.Withdrawer = paced{}
)

// patience is that least delay, as the Azure SDKs document it for throttling.
var patience = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// Decide asks the policy inside.
func (p paced) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := p.policy.Decide(a)
	if d.Retry && errfilter.OfKind(a.Kind).Pace == errfilter.Slow {
		d.Delay = max(d.Delay, patience.Decide(a).Delay)
	}
	return d
}

// Observe tells the policy inside.
func (p paced) Observe(a retrypolicy.Attempt) { retrypolicy.Observe(p.policy, a) }

// Withdraw tells the policy inside.
func (p paced) Withdraw(a retrypolicy.Attempt) { retrypolicy.Withdraw(p.policy, a) }

// Admit asks the policy inside.
func (p paced) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Admit(p.policy, a)
}
