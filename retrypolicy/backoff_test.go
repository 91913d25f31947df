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

// seconds converts numbers of seconds to durations.
func seconds(list ...float64) []time.Duration {
	var all []time.Duration
	for _, f := range list {
		all = append(all, time.Duration(math.Round(f*1e9)))
	}
	return all
}

// The expected delays come from the tests of other systems, where their policy equals a Backoff.
func TestBackoffPublishedDelays(t *testing.T) {
	type b = retrypolicy.Backoff
	for _, c := range []struct {
		name   string
		policy b
		u      float64
		first  int // the first Retry
		want   []time.Duration
	}{
		{"smithy-kotlin", b{Base: 10 * msec}, 0.5, 1, seconds(0.01, 0.02, 0.04, 0.08, 0.16, 0.32)},
		{"smithy-kotlin, cap", b{Base: 10 * msec, Max: 100 * msec}, 0.5, 1, seconds(0.01, 0.02, 0.04, 0.08, 0.1, 0.1)},
		{"smithy-kotlin, throttling", b{Base: s}, 0.5, 1, seconds(1, 2, 4)},
		{"botocore before 2026", b{Base: s, Max: 20 * s, Jitter: retrypolicy.JitterFull}, 1, 1, seconds(1, 2, 4, 8, 16, 20,
			20, 20, 20)},
		{"botocore legacy, third retry", b{Base: 3 * s}, 0.5, 3, seconds(12)},
		{"aws-sdk-go-v2 before 2026, U = 0", b{Base: s, Max: 20 * s, Jitter: retrypolicy.JitterFull}, 0, 2, seconds(0)},
		{"aws-sdk-go-v2 before 2026, its attempt 2", b{Base: s, Max: 20 * s, Jitter: retrypolicy.JitterFull}, 0.5, 3,
			seconds(2)},
		{"smithy-python none", b{Base: 2 * s, Max: 20 * s}, 0.5, 0, seconds(0, 2, 4, 8, 16, 20, 20)},
		{"smithy-python none, cap below base", b{Base: 4 * s, Max: 2 * s}, 0.5, 0, seconds(0, 2, 2, 2)},
		{"smithy-python none, fractions", b{Base: 23400 * msec, Max: 76500 * msec}, 0.5, 0, seconds(0, 23.4, 46.8, 76.5,
			76.5)},
		{"smithy-python full", b{Base: 2 * s, Max: 20 * s, Jitter: retrypolicy.JitterFull}, 0.5, 0, seconds(0, 1, 2, 4, 8, 10,
			10)},
		{"smithy-python full, small cap", b{Base: 5 * s, Max: 10 * s, Jitter: retrypolicy.JitterFull}, 0.5, 0,
			seconds(0, 2.5, 5, 5, 5)},
		{"smithy-python equal", b{Base: 2 * s, Max: 20 * s, Jitter: retrypolicy.JitterEqual}, 0.5, 0,
			seconds(0, 1.5, 3, 6, 12, 15, 15)},
		{"smithy-python decorrelated", b{Base: 2 * s, Max: 20 * s, Jitter: retrypolicy.JitterDecorrelatedSmithy}, 0.5, 0,
			seconds(0, 5, 9.5, 16.25, 20, 20)},
		{"smithy-python, no base", b{Max: 5 * s, Jitter: retrypolicy.JitterFull}, 0.5, 0, seconds(0, 0, 0, 0)},
		{"decorrelated, U = 0, is Base", b{Base: 2 * s, Max: 20 * s, Jitter: retrypolicy.JitterDecorrelated}, 0, 1,
			seconds(2, 2, 2)},
		{"decorrelated, middle: [2, 6), [2, 12), [2, 21), [2, 34.5)", b{Base: 2 * s, Max: 20 * s,
			Jitter: retrypolicy.JitterDecorrelated}, 0.5, 1, seconds(4, 7, 11.5, 18.25, 20)},
		{"decorrelated, U = 1, is three times", b{Base: 2 * s, Max: 20 * s, Jitter: retrypolicy.JitterDecorrelated}, 1, 1,
			seconds(6, 18, 20)},
		{"polly v2, middle", b{Base: 1000 * s, Jitter: retrypolicy.JitterDecorrelatedV2}, 0.5, 1,
			seconds(897.4, 1093.0, 2035.7,
				4046.0, 8083.6, 16163.7, 32325.5, 64650.1)},
		{"polly v2, quarter", b{Base: 1000 * s, Jitter: retrypolicy.JitterDecorrelatedV2}, 0.25, 1,
			seconds(646.9, 1013.6, 1720.4,
				3404.5, 6798.4, 13592.4, 27182.6, 54364.1)},
		{"gRPC least", b{Base: s, Factor: 1.5, Max: 2 * s, Jitter: retrypolicy.JitterProportional, Low: 0.8, High: 1.2}, 0, 1,
			seconds(0.8, 1.2, 1.6, 1.6)},
		{"gRPC greatest is above Max", b{Base: s, Factor: 1.5, Max: 2 * s, Jitter: retrypolicy.JitterProportional, Low: 0.8,
			High: 1.2}, 1, 1, seconds(1.2, 1.8, 2.4, 2.4)},
		{"unless Hard", b{Base: s, Factor: 1.5, Max: 2 * s, Jitter: retrypolicy.JitterProportional, Low: 0.8, High: 1.2,
			Hard: true}, 1, 1, seconds(1.2, 1.8, 2, 2)},
		{"factor 1", b{Base: s, Factor: 1}, 0.5, 1, seconds(1, 1, 1)},
		{"factor 3", b{Base: s, Factor: 3, Max: 20 * s}, 0.5, 1, seconds(1, 3, 9, 20, 20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			tol := time.Duration(1)
			if c.policy.Jitter == retrypolicy.JitterDecorrelatedV2 {
				tol = 51 * msec // the published figures have four decimals of Base
			}
			a := retrypolicy.Attempt{Rand: policytest.Draw(c.u)}
			series := policytest.Series(c.policy)
			for i, want := range c.want {
				a.Retry = c.first + i
				d := series.Decide(a)
				if off := d.Delay - want; !d.Retry || off > tol || off < -tol {
					t.Errorf("retry %d: %v, want after %v", a.Retry, d, want)
				}
			}
		})
	}
}

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
	policytest.WantDelays(t, retrypolicy.Incremental{Step: s, Max: 3 * s}, retrypolicy.Attempt{Rand: drawLast}, 0, 1*s,
		2*s, 3*s, 3*s)
	policytest.WantDelays(t, retrypolicy.Incremental{Step: s, Max: 3 * s, Jitter: 0.5},
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
