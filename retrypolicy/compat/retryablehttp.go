package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// RetryableHTTP is the policy of go-retryablehttp: min(2^(n-1) * Min, Max) before the n-th retry,
// without jitter. After 429 and 503 a wait that the service asked for replaces the delay, even
// above Max. The zero value has the library's defaults. httpretry.Classify comes close to the
// library, which retries 429 and all 5xx except 501.
//
// Source: the library's code.
type RetryableHTTP struct {
	// Retries is the number of retries. 0: 4. Negative: none.
	Retries int
	// Min and Max bound the delay, or the step of Linear. 0: 1 s and 30 s.
	Min, Max time.Duration
	// Linear: n * (Min + U*(Max-Min)), without a cap, as RateLimitLinearJitterBackoff does.
	Linear bool
}

// Decide stops with OutOfAttempts after Retries.
func (r RetryableHTTP) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	n := max(a.Retry, 1)
	if n > kit.OrDefault(r.Retries, 4) {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	if a.After > 0 && overloaded(a) {
		return again(a.After)
	}
	least, most := r.bounds()
	if !r.Linear {
		return again(kit.Exponential(least, 2, n, most))
	}
	step := least
	if most > least {
		step += time.Duration(kit.Below(uint64(most-least), a.Rand))
	}
	return retrypolicy.Incremental{Step: step}.Decide(retrypolicy.Attempt{Retry: n})
}

func (r RetryableHTTP) bounds() (least, most time.Duration) {
	return kit.OrDefault(r.Min, sec), kit.OrDefault(r.Max, 30*sec)
}

// Validate reports the first invalid parameter.
func (r RetryableHTTP) Validate() error {
	least, most := r.bounds()
	return kit.Check("RetryableHTTP.",
		kit.Bad(r.Min < 0, "Min is negative; give a duration, 0 for 1 s"),
		kit.Bad(r.Max < 0, "Max is negative; give a duration, 0 for 30 s"),
		kit.Bad(most < least, "Max is below Min; give Min or more"))
}
