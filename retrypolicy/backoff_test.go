package retrypolicy_test

import (
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestBackoffFarBeyondTheCap(t *testing.T) {
	for _, n := range huge {
		for _, factor := range []float64{0, 2, 3, 1e300} {
			checkDelay(t, retrypolicy.Backoff{Base: s, Factor: factor, Max: time.Minute}, n, drawLast, time.Minute)
			if n > 40 {
				checkDelay(t, retrypolicy.Backoff{Base: s, Factor: factor}, n, drawLast, math.MaxInt64)
			}
			checkDelay(t, retrypolicy.Backoff{Factor: factor}, n, drawLast, 0)
		}
		checkDelay(t, retrypolicy.Backoff{Base: s, Max: time.Minute, Jitter: retrypolicy.JitterProportional, Low: 0.8,
			High: 1.2},
			n, drawHalf, time.Minute)
		checkDelay(t, retrypolicy.Backoff{Base: math.MaxInt64, Jitter: retrypolicy.JitterProportional, Low: 0.8,
			High: 1.2}, n,
			drawLast, math.MaxInt64)
		checkDelay(t, retrypolicy.Incremental{Step: time.Hour, Max: 24 * time.Hour}, max(n, 24), drawLast, 24*time.Hour)
		checkDelay(t, retrypolicy.Incremental{Step: 1 << 60}, n, drawLast, math.MaxInt64)
	}
}

func TestFixedAndIncremental(t *testing.T) {
	checkDelay(t, retrypolicy.Fixed{Delay: s, Jitter: 0.25}, 9, drawZero, 750*msec)
	checkDelay(t, retrypolicy.Fixed{Delay: s, Jitter: 0.25}, 9, drawHalf, s)
	checkDelay(t, retrypolicy.Fixed{Delay: s, Jitter: 0.25}, 9, drawLast, 1250*msec)
	checkDelay(t, retrypolicy.Fixed{Delay: s}, 0, drawLast, s)
	wantDelays(t, retrypolicy.Incremental{Step: s, Max: 3 * s}, retrypolicy.Attempt{Rand: drawLast}, 0, 1*s,
		2*s, 3*s, 3*s)
	wantDelays(t, retrypolicy.Incremental{Step: s, Max: 3 * s, Jitter: 0.5},
		retrypolicy.Attempt{Rand: drawLast}, 0,
		1500*msec, 3*s, 4500*msec, 4500*msec)
	checkDelay(t, retrypolicy.Incremental{Step: s}, 0, drawLast, s)
}

func TestBackoffValidate(t *testing.T) {
	type b = retrypolicy.Backoff
	nan := math.NaN()
	for _, c := range []struct {
		policy retrypolicy.Policy
		want   string
	}{
		{b{}, "Backoff.Base is 0"},
		{b{Max: s}, "Backoff.Base is 0"},
		{b{Base: 1, Jitter: retrypolicy.JitterProportional}, "Low and High make no range"},
		{b{Base: 1, Jitter: retrypolicy.JitterProportional, High: 0.5}, "Backoff.High is too small"},
		{b{Base: 1, Max: 1, Factor: 1, Jitter: retrypolicy.JitterDecorrelatedV2}, ""},
		{b{Base: 1, Jitter: retrypolicy.JitterProportional, High: 1}, ""},
		{b{Base: -1}, "Backoff.Base"},
		{b{Factor: 0.9}, "Backoff.Factor is below 1 or not finite"},
		{b{Factor: nan}, "Backoff.Factor"},
		{b{Factor: math.Inf(1)}, "Backoff.Factor is below 1 or not finite"},
		{b{Factor: -2}, "Backoff.Factor"},
		{b{Max: -1}, "Backoff.Max is negative"},
		{b{Base: 2, Max: 1}, "Backoff.Max is below Base"},
		{b{Jitter: retrypolicy.JitterProportional + 1}, "Backoff.Jitter"},
		{b{Jitter: retrypolicy.JitterProportional, Low: -1, High: 1}, "Low and High make no range"},
		{b{Jitter: retrypolicy.JitterProportional, Low: 2, High: 1}, "Low and High make no range"},
		{b{Jitter: retrypolicy.JitterProportional, Low: nan, High: 1}, "Low and High make no range"},
		{b{Jitter: retrypolicy.JitterProportional, High: math.Inf(1)}, "Low and High make no range"},
		{b{Low: 1}, "for Proportional jitter only"},
		{b{Jitter: retrypolicy.JitterFull, High: 1}, "for Proportional jitter only"},
		{retrypolicy.Immediately{}, ""},
		{retrypolicy.Fixed{}, "Fixed.Delay is 0"},
		{retrypolicy.Fixed{Jitter: 1}, "Fixed.Delay is 0"},
		{retrypolicy.Fixed{Delay: -1}, "Fixed.Delay"},
		{retrypolicy.Fixed{Jitter: -0.1}, "Fixed.Jitter"},
		{retrypolicy.Fixed{Jitter: 1.1}, "Fixed.Jitter"},
		{retrypolicy.Fixed{Jitter: nan}, "Fixed.Jitter"},
		{retrypolicy.Incremental{}, "Incremental.Step is 0"},
		{retrypolicy.Incremental{Max: s}, "Incremental.Step is 0"},
		{retrypolicy.Incremental{Step: -1}, "Incremental.Step"},
		{retrypolicy.Incremental{Max: -1}, "Incremental.Max is negative"},
		{retrypolicy.Incremental{Step: 2, Max: 1}, "Incremental.Max is below Step"},
		{retrypolicy.Incremental{Jitter: nan}, "Incremental.Jitter"},
	} {
		checkInvalid(t, c.policy, c.want)
	}
}

// Full jitter is uniform: the mean of many draws is half the delay.
func TestJittersHaveTheirMeans(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy retrypolicy.Policy
		want   time.Duration // the mean at the fourth retry
	}{
		{"full", retrypolicy.Backoff{Base: s, Jitter: retrypolicy.JitterFull}, 4 * s},
		{"equal", retrypolicy.Backoff{Base: s, Jitter: retrypolicy.JitterEqual}, 6 * s},
		{"proportional", retrypolicy.Backoff{Base: s, Jitter: retrypolicy.JitterProportional, Low: 0.8, High: 1.2}, 8 * s},
		{"fixed", retrypolicy.Fixed{Delay: s, Jitter: 1}, s},
		{"azcore", compat.Azcore{MaxRetries: 4, Delay: s}, 15750 * msec},
		{"csharp", compat.AzureCSharp{}, 1024 * msec},
		{"java", compat.AzureJava{}, 796500 * time.Microsecond}, // 100 + 7 * 99.5
	} {
		const draws = 1 << 14
		var sum time.Duration
		for i := range uint64(draws) {
			sum += c.policy.Decide(retrypolicy.Attempt{Retry: 4, Kind: transport.Network, Rand: i<<50 | 1<<49}).Delay
		}
		if mean := sum / draws; mean < c.want-msec || mean > c.want+msec {
			t.Errorf("%s: mean %v, want %v", c.name, mean, c.want)
		}
	}
}

// wantDelays compares the first delays of a series, with the tolerance tol.
func wantDelays(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, tol time.Duration, want ...time.Duration) {
	t.Helper()
	got := policytest.Sequence(p, a, len(want))
	if len(got) != len(want) {
		t.Fatalf("%+v: %d decisions, the last %+v; want %d retries", p, len(got), got[len(got)-1], len(want))
	}
	for i, d := range got {
		if off := d.Delay - want[i]; !d.Retry || off < -tol || off > tol {
			t.Errorf("%+v: retry %d = %v (%d ns), want after %v", p, i+1, d, d.Delay, want[i])
		}
	}
}
