package retrypolicy

import (
	"math"
	"time"
)

// AzureCSharpV1 is what the Azure IoT device SDK 1.x for .NET does. The numbers are those of
// AzureJava without its fast first retry: with c = 0 for the first retry, min(Min + (2^c-1) *
// [0.8*Delta, 1.2*Delta), Max) in whole milliseconds; but tries begin at least a second apart, so
// what the try itself took is taken off that second. The defaults, where all numbers are zero, are
// Count 2^31-1, Min 100 ms, Max 10 s and Delta 100 ms. With tries that fail at once that gives 1 s,
// 1 s, 1 s, 1 s, 1.3 to 1.885 s and so on.
//
// Source: the SDK's code, ExponentialBackoffRetryStrategy and RetryPolicy.
type AzureCSharpV1 struct {
	// Count is how many retries there may be.
	Count           int
	Min, Max, Delta time.Duration
}

// apartV1 is how far apart tries begin at least.
const apartV1 = time.Second

func (v AzureCSharpV1) settings() AzureCSharpV1 {
	if v == (AzureCSharpV1{}) {
		v = AzureCSharpV1{Count: math.MaxInt32, Min: 100 * time.Millisecond, Max: 10 * time.Second,
			Delta: 100 * time.Millisecond}
	}
	return v
}

// Decide stops with OutOfAttempts when there were Count retries.
func (v AzureCSharpV1) Decide(a Attempt) Decision {
	v = v.settings()
	c := max(a.Retry, 1) - 1
	if c >= v.Count {
		return stop(OutOfAttempts)
	}
	delay := javaDelay(c, v.Min, v.Max, v.Delta, a.Rand)
	delay = max(delay, apartV1-sinceTry(a))
	return Decision{Retry: true, Delay: delay, Step: tryBegins(a, delay)}
}

// Validate reports the first parameter that makes no sense.
func (v AzureCSharpV1) Validate() error {
	set := v.settings()
	if set.Count < 1 {
		return invalid("AzureCSharpV1.Count is below 1; give the number of retries, NoRetry{} for none")
	}
	return javaRange("AzureCSharpV1", set.Min, set.Max, set.Delta)
}

// sinceTry is the time since the latest try began, for policies that keep tryBegins in
// Decision.Step.
func sinceTry(a Attempt) time.Duration {
	began := max(time.Duration(a.Last.Step), 0)
	return max(a.Elapsed-min(began, max(a.Elapsed, 0)), 0)
}

// tryBegins is when the next try begins, counted like Attempt.Elapsed.
func tryBegins(a Attempt, delay time.Duration) uint64 {
	elapsed := max(a.Elapsed, 0)
	return uint64(elapsed + min(delay, longest-elapsed))
}
