package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// Azcore is the retry policy of the Azure SDK for Go: min((2^n - 1) * Delay * [0.8, 1.3), Max)
// before the n-th retry. A wait that the service asked for replaces the delay; above Max it stops
// with Pushback. The zero value has the SDK's defaults. A negative number turns a field off (where
// the SDK takes no Delay for an overflow and waits for Max). Every number has a meaning, so
// Validate is not needed.
//
// The SDK retries the statuses AzcoreStatuses and every error without a status: Retrier{Policy:
// Azcore{}, Classify: ClassifyStatuses(AzcoreStatuses()...)}. Its TryTimeout is
// Retrier.AttemptTimeout.
//
// Source: the SDK's code, sdk/azcore/runtime/policy_retry.
type Azcore struct {
	// MaxRetries is the number of retries. 0: 3.
	MaxRetries int
	// Delay is the unit of the growth. 0: 800 ms.
	Delay time.Duration
	// Max is the longest delay. 0: 60 s.
	Max time.Duration
}

// AzcoreStatuses are the HTTP statuses that the Azure SDK for Go retries.
func AzcoreStatuses() []int { return []int{408, 429, 500, 502, 503, 504} }

// Decide stops with OutOfAttempts or Pushback.
func (z Azcore) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	unit, most := kit.OrDefault(z.Delay, 800*ms), kit.OrDefault(z.Max, time.Minute)
	if z.Max < 0 {
		most = kit.Longest
	}
	n := max(a.Retry, 1)
	switch {
	case n > kit.OrDefault(z.MaxRetries, 3):
		return stop(retrypolicy.ReasonOutOfAttempts)
	case a.After > most:
		return stop(retrypolicy.ReasonPushback)
	case a.After > 0:
		return again(a.After)
	}
	// may be infinite, or NaN if there is no delay: OfFloat handles both
	grown := (math.Exp2(float64(n)) - 1) * float64(unit)
	return again(min(kit.OfFloat(grown*(0.8+0.5*kit.Unit(a.Rand))), most))
}
