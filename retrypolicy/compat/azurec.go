package compat

import (
	"cmp"
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// AzureCCurve names a retry policy of the Azure IoT device SDK for C. n counts retries, from 1.
// With all curves but AzureCNone the first retry comes at once.
type AzureCCurve uint8

const (
	// AzureCExponentialJitter: AzureCExponential plus 0 to Jitter percent of it, added after the
	// limit. The SDK's default.
	AzureCExponentialJitter AzureCCurve = iota
	AzureCExponential                   // Initial * 2^(n-2)
	AzureCLinear                        // Initial * (n-1)
	AzureCInterval                      // Initial
	AzureCRandom                        // a random whole number of seconds in [0, Initial)
	AzureCImmediate                     // always at once
	AzureCNone                          // never

	cCurves // number of curves
)

// AzureC is the retry control of the Azure IoT device SDK for C. It truncates to whole seconds, so
// a jitter of 5 % has no effect below 20 s. A wait starts at the beginning of the previous attempt,
// so a long attempt shortens the delay after it. The zero value is the SDK's default: 0, 1, 2, 4,
// 8, 16 s, then 30 or 31 s, for ever.
//
// Source: the SDK's code, iothub_client_retry_control; its document describes another jitter.
type AzureC struct {
	Curve AzureCCurve
	// Initial is the unit of the curves. 0: 1 s for the exponential ones, 5 s for the others.
	Initial time.Duration
	// Max is the longest delay before jitter. 0: 30 s.
	Max time.Duration
	// Jitter is in percent. 0: 5. AzureCExponential ignores it.
	Jitter int
	// Limit ends the retries: none begins later than Limit after the beginning of the series. (The SDK
	// counts from the first retry, which comes at once.) AzureCImmediate ignores it, as in the SDK. 0:
	// none.
	Limit time.Duration
}

// Decide stops with OutOfTime where the SDK would wait for the limit and then stop.
func (c AzureC) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return (&azureC{AzureC: c}).Decide(a)
}

// Begin begins a series, which remembers when the latest attempt began.
func (c AzureC) Begin(retrypolicy.Start) retrypolicy.Series { return &azureC{AzureC: c} }

type azureC struct {
	AzureC
	retrypolicy.Free
	try attemptTime
}

func (c *azureC) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	switch c.Curve {
	case AzureCNone:
		return retrypolicy.Decision{}
	case AzureCImmediate:
		return again(0)
	default: // the others have delays
	}
	var delay time.Duration
	if a.Retry > 1 {
		delay = max(c.wait(a.Retry, a.Rand)-c.try.since(a), 0)
		if c.Limit > 0 && (a.Elapsed >= c.Limit || delay >= c.Limit-max(a.Elapsed, 0)) {
			return stop(retrypolicy.ReasonOutOfTime)
		}
	}
	c.try.next(a, delay)
	return again(delay)
}

// wait returns the time from the beginning of the previous attempt, for n >= 2.
func (c AzureC) wait(n int, draw uint64) time.Duration {
	initial, most := c.initial(), cmp.Or(c.Max, 30*sec)
	var wait time.Duration
	switch c.Curve {
	case AzureCLinear:
		wait = retrypolicy.Incremental{Step: initial, Max: most}.Decide(retrypolicy.Attempt{Retry: n - 1}).Delay
	case AzureCInterval:
		wait = min(initial, most)
	case AzureCRandom:
		wait = min(time.Duration(kit.Below(uint64(max(initial, 0)/sec), draw))*sec, most)
	default:
		wait = kit.Exponential(initial, 2, n-1, most)
	}
	if c.Curve == AzureCExponentialJitter {
		wait = kit.OfFloat(float64(wait) * (1 + float64(cmp.Or(c.Jitter, 5))/100*kit.Unit(draw)))
	}
	return wait.Truncate(sec)
}

func (c AzureC) initial() time.Duration {
	if c.Initial == 0 && c.Curve > AzureCExponential {
		return 5 * sec
	}
	return cmp.Or(c.Initial, sec)
}

// Validate reports the first invalid parameter.
func (c AzureC) Validate() error {
	return kit.Check("AzureC.",
		kit.Bad(c.Curve >= cCurves, "Curve is not one of the constants; use AzureCExponentialJitter"),
		kit.Bad(c.Initial < 0 || c.Initial%time.Second != 0,
			"Initial is not a number of whole seconds; give one, 0 for the default"),
		kit.Bad(c.Curve == AzureCRandom && c.initial() < 2*time.Second,
			"Initial is below 2 s, so AzureCRandom would always draw 0; give 2 s or more, or use AzureCImmediate"),
		kit.Bad(c.Max < 0 || c.Max%time.Second != 0, "Max is not a number of whole seconds; give one, 0 for 30 s"),
		kit.Bad(c.Jitter < 0 || c.Jitter > 100, "Jitter is out of range; give 1 to 100 percent, 0 for 5"),
		kit.Bad(c.Limit < 0, "Limit is negative; give a duration, 0 for none"),
		kit.Bad(c.Curve <= AzureCExponential && c.initial() > math.MaxInt32*time.Second,
			"Initial is above 2^31-1 s; give less"))
}
