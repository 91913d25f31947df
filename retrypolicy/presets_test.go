package retrypolicy_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Shorthands of the tables of all of this package's presets.
const (
	msec = time.Millisecond
	s    = time.Second
)

// draw returns the smallest draw whose fraction is u or more, for u from 0 to 1. It takes u as its
// shortest decimal form.
func draw(u float64) uint64 {
	if u >= 1 {
		return drawLast
	}
	const digits = 1_000_000_000
	n := big.NewInt(int64(math.Round(u * digits)))
	n.Lsh(n, 64).Add(n, big.NewInt(digits-1)).Div(n, big.NewInt(digits))
	return n.Uint64()
}

// sequence returns the decisions of p about the first count retries of a series, each with the
// previous decision in Attempt.Last.
func sequence(p retrypolicy.Policy, a retrypolicy.Attempt, count int) []retrypolicy.Decision {
	var all []retrypolicy.Decision
	for n := 1; n <= count; n++ {
		a.Retry = n
		d := p.Decide(a)
		all = append(all, d)
		if !d.Retry {
			break
		}
		a.Last = d
	}
	return all
}

// wantDelays compares the first delays of a series, with the tolerance tol.
func wantDelays(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, tol time.Duration, want ...time.Duration) {
	t.Helper()
	got := sequence(p, a, len(want))
	if len(got) != len(want) {
		t.Fatalf("%+v: %d decisions, the last %+v; want %d retries", p, len(got), got[len(got)-1], len(want))
	}
	for i, d := range got {
		if off := d.Delay - want[i]; !d.Retry || off < -tol || off > tol {
			t.Errorf("%+v: retry %d = %v (%d ns), want after %v", p, i+1, d, d.Delay, want[i])
		}
	}
}

func wantStop(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, reason retrypolicy.Reason) {
	t.Helper()
	if d := p.Decide(a); d.Retry || d.Reason != reason || d.Delay != 0 {
		t.Errorf("%+v, %+v: %+v, want a stop with %v", p, a, d, reason)
	}
}

var lost = &transport.Error{Kind: transport.Network, Scope: transport.Connection}
