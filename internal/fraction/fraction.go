// Package fraction takes parts of durations in integers: boards have no floating point unit, and
// what they link in its stead is larger than the policies that would use it.
package fraction

import (
	"math"
	"math/bits"
	"time"
)

// IEEE 754 binary64: a number below 1 is mantissa * 2^(exponent-bias).
const (
	mantissaBits = 52
	exponents    = 1<<11 - 1 // all bits of one are set in infinities and NaN
	one          = 1023      // the exponent of 1
	bias         = one + mantissaBits
)

// Of is d*f to the nearest nanosecond, half of one up, for d >= 0; an f outside 0 to 1 counts as
// the nearer end, NaN as 0. It is exact: nothing is rounded on the way.
func Of(d time.Duration, f float64) time.Duration {
	b := math.Float64bits(f)
	mantissa, exponent := b&(1<<mantissaBits-1), int(b>>mantissaBits) // the sign is the exponent's highest bit
	switch {
	case exponent == exponents && mantissa != 0: // NaN
		return 0
	case exponent > exponents: // negative
		return 0
	case exponent >= one:
		return d
	case exponent == 0: // less than any duration can show, or zero
		return 0
	}
	hi, lo := bits.Mul64(uint64(d), mantissa|1<<mantissaBits) // below 2^116
	down := uint(bias - exponent)                             // 53 at least
	if down > 116 {
		return 0 // below one half
	}
	// Half of what is shifted out is added first.
	var carry uint64
	if down <= 64 {
		lo, carry = bits.Add64(lo, 1<<(down-1), 0)
		hi += carry
		return time.Duration(hi<<(64-down) | lo>>down)
	}
	hi += 1 << (down - 65)
	return time.Duration(hi >> (down - 64))
}

// Drawn is a part of d: from 0 up to, not including, d, as draw goes through its values; for d >=
// 0.
func Drawn(d time.Duration, draw uint64) time.Duration {
	part, _ := bits.Mul64(uint64(d), draw)
	return time.Duration(part)
}
