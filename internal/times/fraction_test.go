package times_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

func TestPart(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		f    float64
		want time.Duration
	}{
		{100 * time.Millisecond, 0.5, 50 * time.Millisecond},
		{100 * time.Millisecond, 0.25, 25 * time.Millisecond},
		{5 * time.Second, 0.3, 1500 * time.Millisecond},
		{3, 0.5, 2}, {1, 0.5, 1}, {1, math.Nextafter(0.5, 0), 0}, {0, 0.5, 0},
		{time.Hour, 0, 0}, {time.Hour, math.Copysign(0, -1), 0}, {time.Hour, -0.5, 0}, {time.Hour, math.Inf(-1), 0},
		{time.Hour, math.NaN(), 0},
		{time.Hour, math.Copysign(math.NaN(), -1), 0},
		{time.Hour, 1, time.Hour}, {time.Hour, 1.5, time.Hour}, {time.Hour, math.Inf(1), time.Hour},
		{math.MaxInt64, 1, math.MaxInt64}, {math.MaxInt64, 0.5, 1 << 62}, {math.MaxInt64, math.Nextafter(1, 0),
			math.MaxInt64 - 1024},
		{math.MaxInt64, 0x1p-63, 1}, {math.MaxInt64, 0x1p-64, 0}, {math.MaxInt64, math.SmallestNonzeroFloat64, 0},
		{math.MaxInt64, 0x1p-1022, 0},
	} {
		if got := times.Part(c.d, c.f); got != c.want {
			t.Errorf("%d times %v is %d, want %d", c.d, c.f, got, c.want)
		}
	}
}

// FuzzPart compares with exact arithmetic.
func FuzzPart(f *testing.F) {
	f.Add(int64(100_000_000), 0.5)
	f.Add(int64(math.MaxInt64), math.Nextafter(1, 0))
	f.Add(int64(math.MaxInt64), 0x1.8p-12)
	f.Add(int64(math.MaxInt64), 0x1.8p-11)
	f.Add(int64(12_345_678_901), 1e-17)
	f.Fuzz(func(t *testing.T, d int64, part float64) {
		if d < 0 || !(part >= 0 && part <= 1) {
			return
		}
		exact := new(big.Rat).Mul(new(big.Rat).SetInt64(d), new(big.Rat).SetFloat64(part))
		exact.Add(exact, big.NewRat(1, 2))
		want := new(big.Int).Quo(exact.Num(), exact.Denom())
		if got := times.Part(time.Duration(d), part); int64(got) != want.Int64() {
			t.Errorf("%d times %v is %d, want %v", d, part, int64(got), want)
		}
	})
}

func TestDrawn(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		draw uint64
		want time.Duration
	}{{10, 0, 0}, {10, 1 << 63, 5}, {10, math.MaxUint64, 9}, {math.MaxInt64, math.MaxUint64, math.MaxInt64 - 1},
		{0, math.MaxUint64, 0}} {
		if got := times.Drawn(c.d, c.draw); got != c.want {
			t.Errorf("%d of %d is %d, want %d", c.draw, c.d, got, c.want)
		}
	}
}
