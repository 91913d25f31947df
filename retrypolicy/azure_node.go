package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// AzureNode is what the code of the Azure IoT device SDK for Node.js computes:
//
//	min(Cmin + (2^(n-1) - 1) * rand(0, C*(Jd-Ju)), Cmax)
//
// with Jd = 0.5, Ju = 0.25, and n = 1 for the first retry. C and Cmin are 100 ms and Cmax is 10 s;
// after a failure of Kind Throttled C is 5 s, Cmin 10 s and Cmax 60 s. It is not what that SDK
// documents, which is AzureNodeDocumented: the lower bound of rand is lost. A Retry below 1, which
// the SDK never asks about, is its n = 0: no delay, or in the throttled case half of rand less than
// Cmin. It never stops; the SDK ends an operation after 4 minutes.
//
// Source: the SDK's code, retry_policy.
type AzureNode struct{}

// Decide always retries.
func (AzureNode) Decide(a Attempt) Decision {
	set := &documented
	if a.Kind == transport.Throttled {
		set = &documentedThrottled
	}
	// Jd - Ju is a quarter in both sets.
	r := below(uint64(set.C/4), a.Rand)
	switch {
	case a.Retry >= 1:
		return Decision{Retry: true, Delay: growth(a.Retry, r, set.Cmin, set.Cmax)}
	case set == &documented:
		return Decision{Retry: true}
	}
	return Decision{Retry: true, Delay: set.Cmin - time.Duration(r/2)}
}

var documentedThrottled = ExponentialBackoffWithJitter{C: 5 * time.Second, Cmin: 10 * time.Second,
	Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25}

// AzureNodeDocumented is what the Azure IoT device SDK for Node.js documents:
// ExponentialBackoffWithJitter with its usual constants, and with C = 5 s, Cmin = 10 s, Cmax = 60 s
// after a failure of Kind Throttled. Source: the SDK's document and the comments in its code.
func AzureNodeDocumented() ByKind {
	return ByKind{
		Rules:   []Rule{{Kinds: Kinds(transport.Throttled), Policy: documentedThrottled}},
		Default: ExponentialBackoffWithJitter{},
	}
}
