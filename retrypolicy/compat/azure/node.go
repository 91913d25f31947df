package azure

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/transport"
)

// Node is what the code of the Azure IoT device SDK for Node.js computes:
//
//	min(Cmin + (2^(n-1) - 1) * rand(0, C*(Jd-Ju)), Cmax)
//
// with Jd = 0.5, Ju = 0.25, and n = 1 for the first retry. C and Cmin are 100 ms and Cmax is 10 s;
// after a failure of Kind Throttled C is 5 s, Cmin 10 s and Cmax 60 s. It is not what that SDK
// documents, which is NodeDocumented: the lower bound of rand is lost. A Retry below 1, which
// the SDK never asks about, is its n = 0: no delay, or in the throttled case half of rand less than
// Cmin. It never stops; the SDK ends an operation after 4 minutes.
//
// Source: the SDK's code, retry_policy.
type Node struct{}

// Decide always retries.
func (Node) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	set := &documented
	if a.Kind == transport.Throttled {
		set = &documentedThrottled
	}
	// Jd - Ju is a quarter in both sets.
	r := delay.Below(uint64(set.C/4), a.Rand)
	switch {
	case a.Retry >= 1:
		return retrypolicy.Decision{Retry: true, Delay: delay.Growth(a.Retry, r, set.Cmin, set.Cmax)}
	case set == &documented:
		return retrypolicy.Decision{Retry: true}
	}
	return retrypolicy.Decision{Retry: true, Delay: set.Cmin - time.Duration(r/2)}
}

// documented are the constants of the SDK.
var documented = retrypolicy.ExponentialBackoffWithJitter{
	C: 100 * time.Millisecond, Cmin: 100 * time.Millisecond, Cmax: 10 * time.Second, Jd: 0.5, Ju: 0.25,
}

// documentedThrottled are those after a failure of Kind Throttled.
var documentedThrottled = retrypolicy.ExponentialBackoffWithJitter{C: 5 * time.Second, Cmin: 10 * time.Second,
	Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25}

// NodeDocumented is what the Azure IoT device SDK for Node.js documents:
// ExponentialBackoffWithJitter with its usual constants, and with C = 5 s, Cmin = 10 s, Cmax = 60 s
// after a failure of Kind Throttled. Source: the SDK's document and the comments in its code.
func NodeDocumented() retrypolicy.ByKind {
	return retrypolicy.ByKind{
		Rules:   []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Throttled), Policy: documentedThrottled}},
		Default: retrypolicy.ExponentialBackoffWithJitter{},
	}
}

// Endless reports whether the policy retries for ever.
func (Node) Endless() bool { return true }
