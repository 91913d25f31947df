package retrypolicy_test

import (
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
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

// The decorrelated jitters draw from Base to three times the previous delay, and smithy's above
// Base.
func TestDecorrelatedDelays(t *testing.T) {
	for _, c := range []struct {
		jitter retrypolicy.Jitter
		draw   uint64
		want   []time.Duration
	}{
		{retrypolicy.JitterDecorrelated, policytest.DrawZero, []time.Duration{s, s, s}},
		{retrypolicy.JitterDecorrelated, policytest.DrawHalf, []time.Duration{2 * s, 3500 * msec, 5750 * msec}},
		{retrypolicy.JitterDecorrelatedSmithy, policytest.DrawZero, []time.Duration{s, s, s}},
		{retrypolicy.JitterDecorrelatedSmithy, policytest.DrawHalf, []time.Duration{2500 * msec, 4750 * msec, 8 * s}},
	} {
		p := policytest.Series(retrypolicy.Backoff{Base: s, Max: 8 * s, Jitter: c.jitter})
		for i, want := range c.want {
			if d := p.Decide(retrypolicy.Attempt{Retry: i + 1, Rand: c.draw}); d.Delay != want {
				t.Errorf("jitter %v: retry %d after %v, want %v", c.jitter, i+1, d.Delay, want)
			}
		}
	}
}
