package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// policies are what the client asks about retries. A value is not changed; SetRetryPolicy swaps it.
type policies struct {
	connection, message retrypolicy.Policy
	paced               retrypolicy.Policy // nil: the others, not faster than patience
}

// patience is the least delay after failures that ask for it, as the Azure SDKs document it for throttling.
var patience = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// decide asks the policy that a is for, and makes the delay at least what the service asked for and patience demands.
func (p *policies) decide(a retrypolicy.Attempt) retrypolicy.Decision {
	asked := p.message
	if a.Scope == transport.Connection {
		asked = p.connection
	}
	slow := errfilter.OfKind(a.Kind).Pace == errfilter.Slow
	if slow && p.paced != nil {
		asked = p.paced
	}
	d := asked.Decide(a)
	if !d.Retry {
		return d
	}
	if slow && p.paced == nil {
		d.Delay = max(d.Delay, patience.Decide(a).Delay)
	}
	d.Delay = max(d.Delay, min(a.After, maxRetryAfter), 0)
	return d
}

// maxRetryAfter is the longest wait that a service can ask for: a device must not be put to sleep for years by one answer, which may not even be the hub's.
const maxRetryAfter = time.Hour

// retriesEnded is the error when the policy or OutageLimit ended the retries after cause.
func retriesEnded(cause *transport.Error) *transport.Error {
	return &transport.Error{Kind: transport.RetryExpired, Scope: cause.Scope, Op: cause.Op, Proto: cause.Proto, RetryAfter: cause.RetryAfter, Err: cause}
}
