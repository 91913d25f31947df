package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// AzureCSharpV1 is the retry policy of the Azure IoT device SDK 1.x for .NET. The formula is that
// of Java without its fast first retry: with c = 0 for the first retry, min(Min + (2^c-1) *
// [0.8*Delta, 1.2*Delta), Max) in whole milliseconds. But attempts begin at least one second apart,
// a second that includes the duration of the attempt. If all numbers are zero the defaults are
// Count 2^31-1, Min 100 ms, Max 10 s and Delta 100 ms. With attempts that fail at once that gives 1
// s, 1 s, 1 s, 1 s, 1.3 to 1.885 s and so on.
//
// Source: the SDK's code, ExponentialBackoffRetryStrategy and RetryPolicy.
type AzureCSharpV1 struct {
	// Count is the number of retries.
	Count           int
	Min, Max, Delta time.Duration
}

// apartV1 is the shortest time between the beginnings of two attempts.
const apartV1 = time.Second

func (v AzureCSharpV1) settings() AzureCSharpV1 {
	if v == (AzureCSharpV1{}) {
		v = AzureCSharpV1{Count: math.MaxInt32, Min: 100 * time.Millisecond, Max: 10 * time.Second,
			Delta: 100 * time.Millisecond}
	}
	return v
}

// Decide stops with OutOfAttempts after Count retries.
func (v AzureCSharpV1) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return (&csharpV1{AzureCSharpV1: v.settings()}).Decide(a)
}

// Begin begins a series, which remembers when the latest attempt began.
func (v AzureCSharpV1) Begin(retrypolicy.Start) retrypolicy.Series {
	return &csharpV1{AzureCSharpV1: v.settings()}
}

// csharpV1 is a series of a CSharpV1.
type csharpV1 struct {
	AzureCSharpV1
	retrypolicy.Free
	try attemptTime
}

func (v *csharpV1) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	c := max(a.Retry, 1) - 1
	if c >= v.Count {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	delay := javaDelay(c, v.Min, v.Max, v.Delta, a.Rand)
	delay = max(delay, apartV1-v.try.since(a))
	v.try.next(a, delay)
	return retrypolicy.Decision{Retry: true, Delay: delay}
}

// Validate reports the first invalid parameter.
func (v AzureCSharpV1) Validate() error {
	set := v.settings()
	return javaRange("AzureCSharpV1.", set.Count, set.Min, set.Max, set.Delta)
}

// attemptTime is when the latest attempt began, on the scale of Attempt.Elapsed.
type attemptTime time.Duration

// since returns the time since the latest attempt began.
func (t *attemptTime) since(a retrypolicy.Attempt) time.Duration {
	if a.Retry <= 1 { // the caller counts anew
		*t = 0
	}
	elapsed := max(a.Elapsed, 0)
	return elapsed - min(time.Duration(*t), elapsed)
}

// next notes that the next attempt begins after d.
func (t *attemptTime) next(a retrypolicy.Attempt, d time.Duration) {
	elapsed := max(a.Elapsed, 0)
	*t = attemptTime(elapsed + min(d, kit.Longest-elapsed))
}
