package times

import (
	"math"
	"math/bits"
	"time"
)

// Fractions are integers: boards have no floating-point unit, and its emulation would be larger
// than the policies that use it.
//
// IEEE 754 binary64: a number below 1 is mantissa * 2^(exponent-bias).
const (
	mantissaBits = 52
	exponents    = 1<<11 - 1 // all exponent bits are set in infinities and NaN
	one          = 1023      // the exponent of 1
	bias         = one + mantissaBits
)

// Part returns d*f rounded to the nearest nanosecond, halves up, for d >= 0. An f below 0 counts as
// 0, above 1 as 1, NaN as 0. Intermediate results are exact.
func Part(d time.Duration, f float64) time.Duration {
	b := math.Float64bits(f)
	mantissa, exponent := b&(1<<mantissaBits-1), int(b>>mantissaBits) // the sign is the exponent's highest bit
	switch {
	case exponent == exponents && mantissa != 0: // NaN
		return 0
	case exponent > exponents: // negative
		return 0
	case exponent >= one:
		return d
	case exponent == 0: // zero, or too small for any duration
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), mantissa|1<<mantissaBits) // below 2^116
	down := uint(bias - exponent)                             // 53 at least
	if down > 116 {
		return 0 // below one half
	}
	// Adds half of the part that is shifted out, for rounding.
	var carry uint64
	if down <= 64 {
		lo, carry = bits.Add64(lo, 1<<(down-1), 0)
		hi += carry
		return time.Duration(hi<<(64-down) | lo>>down)
	}
	hi += 1 << (down - 65)
	return time.Duration(hi >> (down - 64))
}

// Drawn returns a part of d, from 0 up to but not including d, in proportion to draw; for d >= 0.
func Drawn(d time.Duration, draw uint64) time.Duration {
	part, _ := bits.Mul64(uint64(d), draw)
	return time.Duration(part)
}
