package retrypolicy_test

import (
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

func checkDelay(t *testing.T, p retrypolicy.Policy, x int, draw uint64, want time.Duration) {
	t.Helper()
	got := p.Decide(retrypolicy.Attempt{Retry: x, Rand: draw})
	if got != (retrypolicy.Decision{Retry: true, Delay: want}) {
		t.Errorf("F(%d) with draw %#x = %+v (%d ns), want a retry after %v (%d ns)", x, draw, got, got.Delay, want, want)
	}
}

// A policy that was not validated must not crash a device.
func TestDecideDoesNotPanicOnInvalidParameters(t *testing.T) {
	type exp = retrypolicy.ExponentialBackoffWithJitter
	fractions := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 0.5, 1, 2, 1e300}
	durations := []time.Duration{math.MinInt64, -1, 0, 1, math.MaxInt64}
	for _, jd := range fractions {
		for _, ju := range fractions {
			for _, c := range durations {
				for _, cmin := range durations {
					for _, x := range []int{math.MinInt32, 0, 1, 2, 64, math.MaxInt32} {
						exp{C: c, Cmin: cmin, Cmax: time.Second, Jd: jd, Ju: ju}.Decide(
							retrypolicy.Attempt{Retry: x, Rand: math.MaxUint64})
					}
				}
			}
		}
	}
}
