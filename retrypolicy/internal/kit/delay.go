// Package kit has what the retry policies of several packages share: the arithmetic of delays,
// errors for invalid parameters and the properties of failures, and the nesting of budgets.
package kit

import (
	"math"
	"math/bits"
	"time"
)

// Longest is the longest duration.
const Longest = time.Duration(math.MaxInt64)

// OfFloat converts nanoseconds, capped at the longest duration. A negative number or NaN becomes 0.
func OfFloat(ns float64) time.Duration {
	switch {
	case ns >= math.MaxInt64:
		return Longest
	case ns > 0:
		return time.Duration(ns)
	}
	return 0
}

// Unit returns a draw as a fraction from 0 to 1. The largest draws round to 1.
func Unit(draw uint64) float64 { return float64(draw) / (1 << 64) }

// Below returns a whole number in [0, n), or 0 if n is 0.
func Below(n, draw uint64) uint64 {
	whole, _ := bits.Mul64(n, draw)
	return whole
}

// Spread returns a duration from d*(1-f) to d*(1+f).
func Spread(d time.Duration, f float64, draw uint64) time.Duration {
	if f == 0 {
		return d
	}
	return OfFloat(float64(d) * (1 - f + 2*f*Unit(draw)))
}

// Exponential returns min(base*factor^(n-1), most) for n from 1 on. A factor of 0 means 2.
func Exponential(base time.Duration, factor float64, n int, most time.Duration) time.Duration {
	if n <= 1 {
		return max(min(base, most), 0)
	}
	switch factor {
	case 1:
		return min(base, most)
	case 0, 2:
		switch {
		case base <= 0:
			return 0
		case n > 63 || base > most>>(n-1):
			return most
		}
		return base << (n - 1)
	}
	return min(OfFloat(float64(base)*math.Pow(factor, float64(n-1))), most)
}

// Growth returns min(least + (2^(x-1)-1)*r, most) for any x.
func Growth(x int, r uint64, least, most time.Duration) time.Duration {
	if least >= most || r == 0 || x <= 1 {
		return min(least, most)
	}
	room := uint64(most - least)
	if x-1 >= 63 {
		return most
	}
	factor := uint64(1)<<(x-1) - 1
	if factor > room/r {
		return most
	}
	return least + time.Duration(factor*r)
}

// OrDefault returns value if n is 0, and 0 if n is negative. Several libraries tell "not set" from
// "none" this way.
func OrDefault[T int | time.Duration](n, value T) T {
	if n == 0 {
		return value
	}
	return max(n, 0)
}
