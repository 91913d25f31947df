package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// AzureCSharpV1 is the retry policy of the Azure IoT device SDK 1.x for .NET: the delays of
// AzureJava without its fast first retry, but attempts begin at least one second apart.
//
// Source: the SDK's code, ExponentialBackoffRetryStrategy and RetryPolicy.
func AzureCSharpV1() AzureJava { return AzureJava{NoFastRetry: true, Apart: sec} }

// AzureCSharpCurve names a retry policy of the Azure IoT device SDK 2.x for .NET. n counts retries,
// from 1.
type AzureCSharpCurve uint8

const (
	// AzureCSharpExponential: 2^(n+6) ms, with n+6 at most 32: 128 ms, 256 ms, 512 ms and so on.
	AzureCSharpExponential AzureCSharpCurve = iota
	AzureCSharpFixed                        // Delay
	AzureCSharpIncremental                  // n*Delay

	csharpCurves // number of curves
)

// AzureCSharp is a retry policy of the Azure IoT device SDK 2.x (preview) for .NET. The jitter is a
// whole number of percent from -5 to 5, and none for delays below 50 ms. It is added after the
// limit, so a delay may exceed Max by 5 %. The zero value is the SDK's default: exponential, for
// ever, at most 12 hours, with jitter. The SDK's policies refuse permanent failures themselves;
// here the classifier does so before it asks a policy.
//
// Source: the SDK's code, IotHubClientExponentialBackoffRetryPolicy, -FixedDelay- and
// -IncrementalDelayRetryPolicy.
type AzureCSharp struct {
	Curve AzureCSharpCurve
	// MaxRetries is one more than the number of retries, because the SDK increments before it
	// compares. 0: no limit.
	MaxRetries int
	// Delay is for the curves other than AzureCSharpExponential.
	Delay time.Duration
	// Max is the longest delay before jitter. 0: 12 hours for AzureCSharpExponential, otherwise
	// none.
	Max      time.Duration
	NoJitter bool
}

// Decide stops with OutOfAttempts after MaxRetries-1 retries.
func (c AzureCSharp) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	n, most := max(a.Retry, 1), c.Max
	if c.MaxRetries != 0 && n >= c.MaxRetries {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	delay := c.Delay
	switch c.Curve {
	case AzureCSharpExponential:
		delay, most = ms<<(min(n, 26)+6), kit.OrDefault(most, 12*time.Hour)
	case AzureCSharpIncremental:
		delay = retrypolicy.Incremental{Step: delay}.Decide(a).Delay
	case AzureCSharpFixed:
	}
	if most > 0 {
		delay = min(delay, most)
	}
	if !c.NoJitter && delay >= 50*ms { // exact for delays of up to a day
		delay = kit.OfFloat(float64(delay) * float64(95+kit.Below(11, a.Rand)) / 100)
	}
	return again(delay)
}

// Validate reports the first invalid parameter.
func (c AzureCSharp) Validate() error {
	exponential := c.Curve == AzureCSharpExponential
	return kit.Check("AzureCSharp.",
		kit.Bad(c.Curve >= csharpCurves, "Curve is not one of the constants; use AzureCSharpExponential"),
		kit.Bad(c.MaxRetries < 0, "MaxRetries is negative; give the number of retries plus 1, 0 for no limit"),
		kit.Bad(c.Delay < 0, "Delay is negative; give the delay"),
		kit.Bad(exponential && c.Delay != 0, "Delay is for other curves; leave it 0, or set Curve"),
		kit.Bad(!exponential && c.Delay == 0, "Delay is 0; give the delay, or use Immediately{} for none"),
		kit.Bad(c.Max < 0, "Max is negative; give a duration, 0 for the default"),
		kit.Bad(!exponential && c.Max > 0 && c.Max < c.Delay, "Max is below Delay; give Delay or more"))
}
