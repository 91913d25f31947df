package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// AzureJava computes the delays of the code of the Azure IoT device SDK for Java, for programs that
// migrate. That SDK documents something else, ExponentialBackoffWithJitter. With c = 0 for the
// first retry, and in whole milliseconds:
//
//	0                                                               if c = 0: the fast first retry
//	no retry                                                        if c >= Count
//	min(Min + (2^c - 1) * a whole number in [0.8*Delta, 1.2*Delta), Max)
//
// If all numbers are zero, the SDK's defaults apply: Count 2^31-1, Min 100 ms, Max 10 s, Delta 100
// ms. They give 0, 180 to 219 ms, 340 to 457 ms, 660 to 933 ms and so on, and 10 s from the eighth
// retry. Otherwise no default applies. Fractions of a millisecond are truncated.
//
// The SDK also limits an outage, and a message, to 4 minutes: MaxElapsed{Limit: 4 * time.Minute,
// Policy: Java{}}.
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
	// connection. These have no fast retry, and one retry less than Count. Otherwise c begins with 0,
	// as in the SDK's loops that open and reconnect.
	Resend bool
}

func (j AzureJava) settings() AzureJava {
	if j.Count == 0 && j.Min == 0 && j.Max == 0 && j.Delta == 0 {
		j.Count, j.Min, j.Max, j.Delta = math.MaxInt32, 100*time.Millisecond, 10*time.Second, 100*time.Millisecond
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
		return retrypolicy.Decision{Retry: true}
	case c >= j.Count:
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	return retrypolicy.Decision{Retry: true, Delay: javaDelay(c, j.Min, j.Max, j.Delta, a.Rand)}
}

// Validate reports the first invalid parameter.
func (j AzureJava) Validate() error {
	set := j.settings()
	if err := javaRange("AzureJava.", set.Count, set.Min, set.Max, set.Delta); err != nil {
		return err
	}
	return kit.Check("AzureJava.", kit.Bad(set.Min < time.Millisecond && set.Delta < time.Millisecond && set.Count > 1,
		"Min and Delta are below 1 ms, so every delay would be 0; give one of them, or use Immediately{}"))
}

func javaRange(prefix string, count int, least, most, delta time.Duration) error {
	return kit.Check(prefix,
		kit.Bad(count < 1, "Count is below 1; give the number of retries, NoRetry{} for none"),
		kit.Bad(least < 0, "Min is negative; give 0 or more"),
		kit.Bad(delta < 0, "Delta is negative; give 0 or more"),
		kit.Bad(most < least, "Max is below Min; give Min or more"),
		kit.Bad(most < time.Millisecond, "Max is below 1 ms, so every delay would be 0; give the longest delay"),
		kit.Bad(most > longest32 || delta > longest32, "Max or Delta is above 2^31-1 ms; give less than 24 days"))
}

// longest32 is the longest time that Java's 32-bit milliseconds hold.
const longest32 = math.MaxInt32 * time.Millisecond

// javaDelay returns min(least + (2^c-1)*[0.8*delta, 1.2*delta), most) in milliseconds, where the
// product is at most 2^31-1. For an empty range, for which the SDK throws, it uses the lower bound.
func javaDelay(c int, least, most, delta time.Duration, draw uint64) time.Duration {
	d := float64(delta / time.Millisecond)
	low := uint64(max(d*0.8, 0))
	high := uint64(max(d*1.2, 0))
	r := low + kit.Below(high-low, draw)
	product := uint64(math.MaxInt32)
	switch {
	case r == 0 || c == 0:
		product = 0
	case c < 31 && r <= product/(1<<c-1):
		product = (1<<c - 1) * r
	}
	return max(min(least/time.Millisecond+time.Duration(product), most/time.Millisecond), 0) * time.Millisecond
}
