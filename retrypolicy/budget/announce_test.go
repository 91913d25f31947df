//go:build !tinygo

package budget_test

import (
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
)

func TestAdaptiveStartsFromTheAnnouncedRate(t *testing.T) {
	l := newLimiter(policytest.Epoch)
	rate := func(what string, want float64) {
		t.Helper()
		got, on := l.Rate()
		if wantNear(t, what, got, want); !on {
			t.Errorf("%s: not limiting", what)
		}
	}
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		l.Announce(bad, policytest.Sec(0))
	}
	if _, on := l.Rate(); on {
		t.Error("a rate that is not above 0, or not finite, limits")
	}
	l.Announce(4, policytest.Sec(1))
	rate("at once", 4)
	if d := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(1)}); d.Delay != time.Second/4 {
		t.Errorf("the next attempt: %v", d)
	}
	l.Observe(outcome(1, false))
	rate("after the answer that announced it", 4)
	l.Announce(8, policytest.Sec(1.1))
	rate("the service allows more", 8)
	l.Announce(.1, policytest.Sec(1.2)) // nothing remains for ten seconds
	rate("less than the least of the curve", .1)
	if d := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(1.2)}); d.Delay < 9*time.Second {
		t.Errorf("with nothing left: %v", d)
	}
	for _, years := range []float64{1e-15, math.SmallestNonzeroFloat64} { // a broken answer, which another one corrects
		other := newLimiter(policytest.Epoch)
		other.Announce(years, policytest.Sec(0))
		if d := other.Admit(retrypolicy.Attempt{Now: policytest.Sec(0)}); d.Delay > time.Hour {
			t.Errorf("announced %g a second: wait for %v", years, d.Delay)
		}
	}
	l.Observe(outcome(1.2, false))
	l.Observe(outcome(11.2, false)) // without an announcement
	rate("the curve goes on, with twice the measured rate", 2*(.2*.8+.8*.2))
}

// A service that throttles below the rate that it announces is not believed.
func TestAdaptiveDoesNotBelieveAnAnnouncementAfterThrottling(t *testing.T) {
	l := newLimiter(policytest.Epoch)
	l.Announce(4, policytest.Sec(0))
	l.observe(4, outcome(.9, false))
	l.Announce(4, policytest.Sec(1))
	l.Observe(outcome(1, true)) // measured 5 * 0.8 a second
	limit, _ := l.Rate()
	wantNear(t, "throttled", limit, 4*.7)
	l.Announce(4, policytest.Sec(1))
	got, _ := l.Rate()
	wantNear(t, "announced again", got, limit)
	l.Announce(1, policytest.Sec(1))
	got, _ = l.Rate()
	wantNear(t, "less announced", got, 1)
}
