//go:build !tinygo

package retrypolicy_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// TestFormulaAgreesWithArbitraryPrecision compares delays for random parameters with the formula in
// numbers that cannot overflow.
func TestFormulaAgreesWithArbitraryPrecision(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 20_000 {
		least := max(duration(rng), 1)
		e := retrypolicy.ExponentialBackoffWithJitter{
			C: max(duration(rng), 1), Cmin: least, Cmax: least + time.Duration(rng.Int64N(math.MaxInt64-int64(least))),
			Jd: fraction(rng),
		}
		e.Ju = min(fraction(rng), e.Jd)
		if e.Jd == 0 {
			e.Jd = -1 // no jitter
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("seed %d: %+v: %v", seed, e, err)
		}
		x := 1 + rng.IntN(70)
		draw := rng.Uint64()
		want := reference(e, x, draw)
		if got := e.Decide(retrypolicy.Attempt{Retry: x, Rand: draw}); !got.Retry || got.Delay != want {
			t.Fatalf("seed %d: %+v, x = %d, draw %#x: %d ns, want %d ns", seed, e, x, draw, got.Delay, want)
		}
	}
}

// duration draws from all magnitudes, including zero and the longest.
func duration(rng *rand.Rand) time.Duration {
	if rng.IntN(16) == 0 {
		return math.MaxInt64 - 1
	}
	return time.Duration(rng.Int64() >> rng.IntN(64))
}

// fraction draws from 0 to 1, and sometimes returns one of the ends.
func fraction(rng *rand.Rand) float64 {
	switch rng.IntN(8) {
	case 0:
		return 0
	case 1:
		return 1
	}
	return rng.Float64()
}

// reference returns min(Cmin + (2^(x-1)-1)*rand(C*(1-Jd), C*(1-Ju)), Cmax), with the bounds of rand
// rounded to the nearest nanosecond.
func reference(e retrypolicy.ExponentialBackoffWithJitter, x int, draw uint64) time.Duration {
	bound := func(f float64) *big.Int {
		c := big.NewInt(int64(e.C))
		down := new(big.Rat).Mul(new(big.Rat).SetInt(c), new(big.Rat).SetFloat64(f))
		down.Add(down, big.NewRat(1, 2))
		return c.Sub(c, new(big.Int).Quo(down.Num(), down.Denom()))
	}
	low, high := bound(max(e.Jd, 0)), bound(e.Ju)
	r := new(big.Int).Sub(high, low)
	r.Mul(r, new(big.Int).SetUint64(draw)).Rsh(r, 64).Add(r, low)
	f := new(big.Int).Lsh(big.NewInt(1), uint(x-1))
	f.Sub(f, big.NewInt(1)).Mul(f, r).Add(f, big.NewInt(int64(e.Cmin)))
	if limit := big.NewInt(int64(e.Cmax)); f.Cmp(limit) > 0 {
		f = limit
	}
	return time.Duration(f.Int64())
}

var (
	sink    retrypolicy.Decision
	sinkErr error
)

func BenchmarkDecide(b *testing.B) {
	var p retrypolicy.Policy = retrypolicy.ExponentialBackoffWithJitter{}
	b.ReportAllocs()
	x := 0
	for b.Loop() {
		x++
		sink = p.Decide(retrypolicy.Attempt{Retry: x & 15, Rand: uint64(x) << 50})
	}
}
