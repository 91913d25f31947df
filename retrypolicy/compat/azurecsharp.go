package compat

import (
	"math"
	"math/bits"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// The policies of the Azure IoT device SDK 2.x (preview) for .NET. As in the SDK, MaxRetries N
// allows N-1 retries, because the SDK increments before it compares: 1 allows none, and 0 any
// number. The jitter is a whole number of percent from -5 to 5, and none for delays below 50 ms. It
// is added after the limit, so a delay may exceed the limit by 5 %.
//
// The SDK's policies refuse permanent failures themselves. Here the classifier does so before it
// asks a policy.

// AzureCSharpExponential waits 2^(n+6) ms before the n-th retry, with n+6 at most 32, and at most
// Max: 128 ms, 256 ms, 512 ms and so on. The zero value is the SDK's default: for ever, at most 12
// hours, with jitter. Source: the SDK's code, IotHubClientExponentialBackoffRetryPolicy.
type AzureCSharpExponential struct {
	// MaxRetries is one more than the number of retries. 0: no limit.
	MaxRetries int
	// Max is the longest delay before jitter. 0: 12 hours.
	Max      time.Duration
	NoJitter bool
}

// Decide stops with OutOfAttempts after MaxRetries-1 retries.
func (c AzureCSharpExponential) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if csharpOver(c.MaxRetries, a.Retry) {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	most := c.Max
	if most == 0 {
		most = 12 * time.Hour
	}
	delay := time.Millisecond << (min(max(a.Retry, 1), 26) + 6)
	return csharpRetry(min(delay, most), c.NoJitter, a.Rand)
}

// Validate reports the first invalid parameter.
func (c AzureCSharpExponential) Validate() error {
	return kit.Check("AzureCSharpExponential.",
		kit.Bad(c.MaxRetries < 0, "MaxRetries is negative; give the number of retries plus 1, 0 for no limit"),
		kit.Bad(c.Max < 0, "Max is negative; give a duration, 0 for 12 hours"))
}

// AzureCSharpFixed waits Delay before each retry. Source: the SDK's code,
// IotHubClientFixedDelayRetryPolicy.
type AzureCSharpFixed struct {
	// MaxRetries is one more than the number of retries. 0: no limit.
	MaxRetries int
	Delay      time.Duration
	NoJitter   bool
}

// Decide stops with OutOfAttempts after MaxRetries-1 retries.
func (c AzureCSharpFixed) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if csharpOver(c.MaxRetries, a.Retry) {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	return csharpRetry(c.Delay, c.NoJitter, a.Rand)
}

// Validate reports the first invalid parameter.
func (c AzureCSharpFixed) Validate() error {
	return kit.Check("AzureCSharpFixed.",
		kit.Bad(c.MaxRetries < 0, "MaxRetries is negative; give the number of retries plus 1, 0 for no limit"),
		kit.Bad(c.Delay < 0, "Delay is negative; give the delay"),
		kit.Bad(c.Delay == 0, "Delay is 0; give the delay, or use Immediately{} for none"))
}

// AzureCSharpIncremental waits n*Step before the n-th retry, at most Max. Source: the SDK's code,
// IotHubClientIncrementalDelayRetryPolicy.
type AzureCSharpIncremental struct {
	// MaxRetries is one more than the number of retries. 0: no limit.
	MaxRetries int
	Step       time.Duration
	// Max is the longest delay before jitter. 0: no limit.
	Max      time.Duration
	NoJitter bool
}

// Decide stops with OutOfAttempts after MaxRetries-1 retries.
func (c AzureCSharpIncremental) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if csharpOver(c.MaxRetries, a.Retry) {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	d := retrypolicy.Incremental{Step: c.Step, Max: c.Max}.Decide(a)
	return csharpRetry(d.Delay, c.NoJitter, a.Rand)
}

// Validate reports the first invalid parameter.
func (c AzureCSharpIncremental) Validate() error {
	return kit.Check("AzureCSharpIncremental.",
		kit.Bad(c.MaxRetries < 0, "MaxRetries is negative; give the number of retries plus 1, 0 for no limit"),
		kit.Bad(c.Step < 0, "Step is negative; give the first delay"),
		kit.Bad(c.Max < 0, "Max is negative; give a duration, 0 for no limit"),
		kit.Bad(c.Max > 0 && c.Max < c.Step, "Max is below Step; give Step or more"),
		kit.Bad(c.Step == 0, "Step is 0, so every delay would be 0; give the first delay, or use Immediately{}"))
}

func csharpOver(maxRetries, retry int) bool { return maxRetries != 0 && retry >= maxRetries }

// csharpRetry retries after 95 to 105 percent of d.
func csharpRetry(d time.Duration, plain bool, draw uint64) retrypolicy.Decision {
	if plain || d < 50*time.Millisecond {
		return retrypolicy.Decision{Retry: true, Delay: d}
	}
	percent := 95 + kit.Below(11, draw)
	high, low := bits.Mul64(uint64(d), percent)
	if high >= 100 {
		return retrypolicy.Decision{Retry: true, Delay: kit.Longest}
	}
	jittered, _ := bits.Div64(high, low, 100)
	return retrypolicy.Decision{Retry: true, Delay: time.Duration(min(jittered, math.MaxInt64))}
}
