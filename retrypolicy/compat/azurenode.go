package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// AzureNode computes the delays of the code of the Azure IoT device SDK for Node.js:
//
//	min(Cmin + (2^(n-1) - 1) * rand(0, C*(Jd-Ju)), Cmax)
//
// with Jd = 0.5, Ju = 0.25, and n = 1 for the first retry. C and Cmin are 100 ms and Cmax is 10 s;
// after a failure of Kind Throttled C is 5 s, Cmin 10 s and Cmax 60 s. The code differs from the
// SDK's document (NodeDocumented): it drops the lower bound of rand. A Retry below 1, which the SDK
// never has, is computed as n = 0: no delay, or after Throttled Cmin minus half of rand. It never
// stops; the SDK ends an operation after 4 minutes.
//
// Source: the SDK's code, retry_policy.
type AzureNode struct{}

// Decide always retries.
func (AzureNode) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	set := &documented
	if a.Kind == transport.Throttled {
		set = &documentedThrottled
	}
	// Jd - Ju is a quarter in both sets.
	r := kit.Below(uint64(set.C/4), a.Rand)
	switch {
	case a.Retry >= 1:
		return retrypolicy.Decision{Retry: true, Delay: kit.Growth(a.Retry, r, set.Cmin, set.Cmax)}
	case set == &documented:
		return retrypolicy.Decision{Retry: true}
	}
	return retrypolicy.Decision{Retry: true, Delay: set.Cmin - time.Duration(r/2)}
}

// documented holds the constants of the SDK.
var documented = retrypolicy.ExponentialBackoffWithJitter{
	C: 100 * time.Millisecond, Cmin: 100 * time.Millisecond, Cmax: 10 * time.Second, Jd: 0.5, Ju: 0.25,
}

// documentedThrottled holds the constants after a failure of Kind Throttled.
var documentedThrottled = retrypolicy.ExponentialBackoffWithJitter{C: 5 * time.Second, Cmin: 10 * time.Second,
	Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25}

// AzureNodeDocumented is the documented policy of the Azure IoT device SDK for Node.js:
// ExponentialBackoffWithJitter with its usual constants, and with C = 5 s, Cmin = 10 s, Cmax = 60 s
// after a failure of Kind Throttled. Source: the SDK's document and the comments in its code.
func AzureNodeDocumented() retrypolicy.ByKind {
	return retrypolicy.ByKind{
		Rules:   []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Throttled), Policy: documentedThrottled}},
		Default: retrypolicy.ExponentialBackoffWithJitter{},
	}
}
