package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// AzureJava has the delays of the code of the Azure IoT device SDK for Java. With c = 0 for the
// first retry, and in whole milliseconds:
//
//	0                                                               if c = 0: the fast first retry
//	no retry                                                        if c >= Count
//	min(Min + (2^c - 1) * a whole number in [0.8*Delta, 1.2*Delta), Max)
//
// If all numbers are zero, the SDK's defaults apply: Count 2^31-1, Min 100 ms, Max 10 s, Delta 100
// ms. Otherwise no default applies. The SDK also limits an outage, and a message, to 4 minutes:
// MaxElapsed{Limit: 4 * time.Minute, Policy: AzureJava{}}.
//
// Source: the SDK's code, ExponentialBackoffWithJitter and IotHubTransport.
type AzureJava struct {
	// Count is the number of retries. The SDK refuses 0.
	Count int
	// Min is the shortest delay, and the first without the fast retry; Max is the longest.
	Min, Max time.Duration
	// Delta scales the growth.
	Delta time.Duration
	// NoFastRetry makes the first retry wait for Min.
	NoFastRetry bool
	// Resend makes c begin with 1, as for the SDK's messages and for the devices of a shared
	// connection: no fast retry, and one retry less than Count.
	Resend bool
	// Apart is how far apart attempts begin at least. 0: no matter.
	Apart time.Duration
}

func (j AzureJava) settings() AzureJava {
	if j.Count == 0 && j.Min == 0 && j.Max == 0 && j.Delta == 0 {
		j.Count, j.Min, j.Max, j.Delta = math.MaxInt32, 100*ms, 10*sec, 100*ms
	}
	return j
}

// Decide stops with OutOfAttempts after Count retries.
func (j AzureJava) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	j = j.settings()
	c := max(a.Retry, 1)
	if !j.Resend {
		c--
	}
	switch {
	case c == 0 && !j.NoFastRetry:
		return again(0)
	case c >= j.Count:
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	return again(j.delay(c, a.Rand))
}

// Begin begins a series, which remembers when the latest attempt began, if Apart is set.
func (j AzureJava) Begin(retrypolicy.Start) retrypolicy.Series {
	if j.Apart == 0 {
		return nil
	}
	return &javaSeries{AzureJava: j}
}

type javaSeries struct {
	AzureJava
	retrypolicy.Free
	try attemptTime
}

func (j *javaSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := j.AzureJava.Decide(a)
	if d.Retry {
		d.Delay = max(d.Delay, j.Apart-j.try.since(a))
		j.try.next(a, d.Delay)
	}
	return d
}

// delay computes the formula, where the product is at most 2^31-1. For an empty range, for which
// the SDK throws, it uses the lower bound.
func (j AzureJava) delay(c int, draw uint64) time.Duration {
	d := float64(j.Delta / ms)
	low, high := uint64(max(d*0.8, 0)), uint64(max(d*1.2, 0))
	r := low + kit.Below(high-low, draw)
	product := uint64(math.MaxInt32)
	switch {
	case r == 0 || c == 0:
		product = 0
	case c < 31 && r <= product/(1<<c-1):
		product = (1<<c - 1) * r
	}
	return max(min(j.Min/ms+time.Duration(product), j.Max/ms), 0) * ms
}

// Validate reports the first invalid parameter.
func (j AzureJava) Validate() error {
	j = j.settings()
	const longest = math.MaxInt32 * ms // that Java's 32-bit milliseconds hold
	return kit.Check("AzureJava.",
		kit.Bad(j.Count < 1, "Count is below 1; give the number of retries, NoRetry{} for none"),
		kit.Bad(j.Min < 0, "Min is negative; give 0 or more"),
		kit.Bad(j.Delta < 0, "Delta is negative; give 0 or more"),
		kit.Bad(j.Apart < 0, "Apart is negative; give 0 or more"),
		kit.Bad(j.Max < j.Min, "Max is below Min; give Min or more"),
		kit.Bad(j.Max < ms, "Max is below 1 ms, so every delay would be 0; give the longest delay"),
		kit.Bad(j.Max > longest || j.Delta > longest, "Max or Delta is above 2^31-1 ms; give less than 24 days"),
		kit.Bad(j.Min < ms && j.Delta < ms && j.Count > 1 && j.Apart == 0,
			"Min and Delta are below 1 ms, so every delay would be 0; give one of them, or use Immediately{}"))
}
