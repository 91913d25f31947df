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
	for _, n := range policytest.Huge {
		for _, factor := range []float64{0, 2, 3, 1e300} {
			checkDelay(t, retrypolicy.Backoff{Base: s, Factor: factor, Max: time.Minute}, n, policytest.DrawLast, time.Minute)
			if n > 40 {
				checkDelay(t, retrypolicy.Backoff{Base: s, Factor: factor}, n, policytest.DrawLast, math.MaxInt64)
			}
			checkDelay(t, retrypolicy.Backoff{Factor: factor}, n, policytest.DrawLast, 0)
		}
		checkDelay(t, retrypolicy.Backoff{Base: s, Max: time.Minute, Jitter: retrypolicy.JitterProportional, Low: 0.8,
			High: 1.2},
			n, policytest.DrawHalf, time.Minute)
		checkDelay(t, retrypolicy.Backoff{Base: math.MaxInt64, Jitter: retrypolicy.JitterProportional, Low: 0.8,
			High: 1.2}, n,
			policytest.DrawLast, math.MaxInt64)
		checkDelay(t, retrypolicy.Incremental{Step: time.Hour, Max: 24 * time.Hour}, max(n, 24), policytest.DrawLast,
			24*time.Hour)
		checkDelay(t, retrypolicy.Incremental{Step: 1 << 60}, n, policytest.DrawLast, math.MaxInt64)
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
