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

// What a policy is besides is asked where it matters, each time: so a board whose program has no policy of the kind links none of what would follow.

func isGate(p retrypolicy.Policy) (retrypolicy.Gate, bool) {
	g, ok := p.(retrypolicy.Gate)
	return g, ok
}

func isObserver(p retrypolicy.Policy) (retrypolicy.Observer, bool) {
	o, ok := p.(retrypolicy.Observer)
	return o, ok
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
	switch {
	case slow && p.paced == nil:
		d.Delay = max(d.Delay, patience.Decide(a).Delay)
	case slow: // what the other policy remembers of the series is kept for it
		d.Cost, d.Step, d.Counts = a.Last.Cost, a.Last.Step, a.Last.Counts
	}
	d.Delay = max(d.Delay, min(a.After, maxRetryAfter), 0)
	return d
}

// maxRetryAfter is the longest wait that a service can ask for: a device must not be put to sleep for years by one answer, which may not even be the hub's.
const maxRetryAfter = time.Hour

// retriesEnded is the error when a policy or OutageLimit ended the retries after cause, for reason.
func retriesEnded(cause *transport.Error, reason retrypolicy.Reason, retries int) *transport.Error {
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: cause.Scope, Op: cause.Op, Proto: cause.Proto, RetryAfter: cause.RetryAfter,
		Err: &retrypolicy.Error{Reason: reason, Retries: retries, Err: cause},
	}
}

// refusedTry is the error when a gate refuses a try. cause is the failure before it, nil before a first try.
func refusedTry(scope transport.Scope, op transport.Op, d retrypolicy.Decision, retries int, cause error) *transport.Error {
	if d.Reason == retrypolicy.ByPolicy {
		d.Reason = retrypolicy.Rejected
	}
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: scope, Op: op, Err: &retrypolicy.Error{Reason: d.Reason, Retries: retries, Err: cause},
	}
}
