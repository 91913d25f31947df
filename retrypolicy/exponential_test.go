package retrypolicy_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// The three draws of the tables: the smallest, the middle, and the largest, which is just below 1.
const (
	drawZero = 0
	drawHalf = 1 << 63
	drawLast = math.MaxUint64
)

// throttled has the constants for a service that asks for fewer requests.
var throttled = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// huge are counts far beyond every cap, including those where a shift or an addition would overflow
// 32 or 64 bits.
var huge = []int{21, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 1 << 30, math.MaxInt32 - 1, math.MaxInt32}

func TestFormulaAtTheEdgesOfItsParameters(t *testing.T) {
	type exp = retrypolicy.ExponentialBackoffWithJitter
	const most = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		name   string
		policy exp
		x      int
		draw   uint64
		want   time.Duration
	}{
		{"only Cmax: the first delay is the documented one", exp{Cmax: time.Minute}, 1, drawHalf, 100 * time.Millisecond},
		{"only Cmax: the growth is the documented one", exp{Cmax: time.Minute}, 3, drawZero, 250 * time.Millisecond},
		{"only Cmax: it is the longest delay", exp{Cmax: time.Minute}, 99, drawLast, time.Minute},
		{"only C", exp{C: time.Second}, 2, drawZero, 600 * time.Millisecond},
		{"only Cmin", exp{Cmin: time.Second}, 2, drawZero, 1050 * time.Millisecond},
		{"no Cmax: the documented one", exp{C: time.Second, Cmin: time.Second}, 99, drawZero, 10 * time.Second},
		{"only Jd", exp{Jd: 0.5}, 2, drawLast, 200*time.Millisecond - 1},
		{"a negative Jd is no jitter", exp{C: time.Second, Cmin: time.Second, Cmax: time.Minute, Jd: -1}, 3, drawHalf,
			4 * time.Second},
		{"Jd = Ju = 1 stays at Cmin", exp{C: time.Second, Cmin: time.Second, Cmax: time.Hour, Jd: 1, Ju: 1}, 99, drawLast,
			time.Second},
		{"Jd = 1 draws from 0", exp{C: time.Second, Cmin: time.Second, Cmax: time.Hour, Jd: 1}, 9, drawZero, time.Second},
		{"Jd = 1, a quarter", exp{C: time.Second, Cmin: time.Second, Cmax: time.Hour, Jd: 1}, 3, 1 << 62,
			1750 * time.Millisecond},
		{"Cmin = Cmax", exp{C: time.Second, Cmin: time.Second, Cmax: time.Second}, 5, drawHalf, time.Second},
		{"a bound that binary fractions miss is rounded, not cut", exp{C: 100 * time.Millisecond, Cmin: 1, Cmax: time.Hour,
			Jd: 0.29, Ju: 0.29}, 2, drawZero, 71*time.Millisecond + 1},
		{"a quarter of 5 ns is 1 ns", exp{C: 5, Cmin: 1, Cmax: time.Hour, Jd: 0.25, Ju: 0.25}, 2, drawZero, 5},
		{"a half of 5 ns is 3 ns", exp{C: 5, Cmin: 1, Cmax: time.Hour, Jd: 0.5, Ju: 0.5}, 2, drawZero, 3},
		{"2^61 ns fits", exp{C: 1, Cmin: 1, Cmax: most, Jd: -1}, 62, drawZero, 1 << 61},
		{"2^62 ns fits", exp{C: 1, Cmin: 1, Cmax: most, Jd: -1}, 63, drawZero, 1 << 62},
		{"2^63 ns is capped", exp{C: 1, Cmin: 1, Cmax: most, Jd: -1}, 64, drawZero, most},
		{"2^64 ns is capped", exp{C: 1, Cmin: 1, Cmax: most, Jd: -1}, 65, drawZero, most},
		{"one step below a cap", exp{C: 1, Cmin: 1, Cmax: 1<<40 + 1, Jd: -1}, 41, drawZero, 1 << 40},
		{"exactly the cap", exp{C: 1, Cmin: 1, Cmax: 1 << 40, Jd: -1}, 41, drawZero, 1 << 40},
		{"one step over a cap", exp{C: 1, Cmin: 1, Cmax: 1<<40 - 1, Jd: -1}, 41, drawZero, 1<<40 - 1},
		{"the longest C, all of it", exp{C: most, Cmin: 1, Cmax: most, Jd: -1}, 2, drawZero, most},
		{"the longest C, none of it", exp{C: most, Cmin: 7, Cmax: most, Jd: 1, Ju: 1}, 2, drawLast, 7},
		{"the longest C, half of it", exp{C: most, Cmin: 1, Cmax: most, Jd: 0.5, Ju: 0.5}, 2, drawZero, 1 << 62},
		{"the longest C, the last draw", exp{C: most, Cmin: 1, Cmax: most, Jd: 1}, 2, drawLast, most},
		{"the longest Cmin", exp{C: most, Cmin: most, Cmax: most}, math.MaxInt32, drawLast, most},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.policy.Validate(); err != nil {
				t.Errorf("Validate: %v", err)
			}
			checkDelay(t, c.policy, c.x, c.draw, c.want)
		})
	}
}

func checkDelay(t *testing.T, p retrypolicy.Policy, x int, draw uint64, want time.Duration) {
	t.Helper()
	got := p.Decide(retrypolicy.Attempt{Retry: x, Rand: draw})
	if got != (retrypolicy.Decision{Retry: true, Delay: want}) {
		t.Errorf("F(%d) with draw %#x = %+v (%d ns), want a retry after %v (%d ns)", x, draw, got, got.Delay, want, want)
	}
}

func TestOnlyCountAndDrawMatter(t *testing.T) {
	want := throttled.Decide(retrypolicy.Attempt{Retry: 3, Rand: drawHalf})
	got := throttled.Decide(retrypolicy.Attempt{
		Retry: 3, Rand: drawHalf, Scope: transport.ScopeConnection, Kind: transport.Throttled, After: time.Hour,
		Elapsed: time.Hour, Err: transport.Throttled,
	})
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestValidateNamesTheFirstParameterThatMakesNoSense(t *testing.T) {
	type exp = retrypolicy.ExponentialBackoffWithJitter
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		policy exp
		want   string // in the error's text; empty: valid
	}{
		{"zero value", exp{}, ""},
		{"throttled set", throttled, ""},
		{"widest jitter", exp{C: 1, Cmin: 1, Cmax: 1, Jd: 1, Ju: 0}, ""},
		{"all a nanosecond", exp{C: 1, Cmin: 1, Cmax: 1}, ""},
		{"Cmax equal to Cmin", exp{Cmin: 5, Cmax: 5}, ""},
		{"negative C", exp{C: -1, Cmax: 1}, "C is negative"},
		{"negative Cmin", exp{Cmin: -1, Cmax: 1}, "Cmin is negative"},
		{"Cmax below Cmin", exp{Cmin: 2, Cmax: 1}, "Cmax is below Cmin"},
		{"negative Cmax", exp{Cmax: -1}, "Cmax is below Cmin"},
		{"Cmax left out", exp{C: 1, Cmin: 1}, ""},
		{"Cmin above the Cmax that is left out", exp{Cmin: time.Minute}, "Cmax is below Cmin"},
		{"Cmax below the Cmin that is left out", exp{Cmax: time.Millisecond}, "Cmax is below Cmin"},
		{"only Cmax", exp{Cmax: time.Minute}, ""},
		{"no jitter by name", exp{Jd: -1}, ""},
		{"no jitter, and some", exp{Jd: -1, Ju: 0.5}, "Jd and Ju"},
		{"Ju above Jd", exp{Cmax: time.Second, Jd: 0.25, Ju: 0.5}, "Jd and Ju"},
		{"Jd above 1", exp{Cmax: time.Second, Jd: 1.01}, "Jd and Ju"},
		{"negative Ju", exp{Cmax: time.Second, Jd: 0.5, Ju: -0.1}, "Jd and Ju"},
		{"Jd not a number", exp{Cmax: time.Second, Jd: nan}, "Jd and Ju"},
		{"Ju not a number", exp{Cmax: time.Second, Jd: 1, Ju: nan}, "Jd and Ju"},
		{"both not numbers, all else zero", exp{Jd: nan, Ju: nan}, "Jd and Ju"},
		{"Jd infinite", exp{Cmax: time.Second, Jd: math.Inf(1)}, "Jd and Ju"},
	} {
		t.Run(c.name, func(t *testing.T) { checkInvalid(t, c.policy, c.want) })
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
						exp{C: c, Cmin: cmin, Cmax: time.Second, Jd: jd, Ju: ju}.Decide(retrypolicy.Attempt{Retry: x, Rand: drawLast})
					}
				}
			}
		}
	}
}

// checkInvalid expects an error of Kind Invalid that contains want, or no error if want is empty.
func checkInvalid(t *testing.T, p retrypolicy.Policy, want string) {
	t.Helper()
	err := retrypolicy.Validate(p)
	if want == "" {
		if err != nil {
			t.Errorf("Validate: %v, want none", err)
		}
		return
	}
	if !errors.Is(err, transport.Invalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("Validate: %v, want Invalid with %q", err, want)
	}
}
