package retrypolicy

import (
	"math"
	"time"
)

// Jitter names a published way to spread delays. v is the delay without jitter,
// min(Base*Factor^(n-1), Max) for the n-th retry; U is a draw from 0 to 1.
type Jitter uint8

const (
	// NoJitter: v.
	NoJitter Jitter = iota
	// FullJitter: U*v. It can be 0. Source: Brooker, "Exponential Backoff And Jitter"; the AWS SDKs.
	FullJitter
	// EqualJitter: v/2 + U*v/2. Source: the same.
	EqualJitter
	// Decorrelated: the least of Max and a draw between Base and three times the delay before, which
	// is Base at first. Source: the same.
	Decorrelated
	// DecorrelatedSmithy: the least of Max and Base + U*3*(the delay before, Base at first). Source:
	// the code of smithy-python.
	DecorrelatedSmithy
	// DecorrelatedV2: smooth around v. With t = n-1+U, f(t) = 2^t * tanh(sqrt(4t)), the delay is (f(t)
	// - f before)/1.4 * Base. Factor does not count. Source: Polly v8.
	DecorrelatedV2
	// Proportional: v times a draw between Backoff.Low and Backoff.High. The result may be above Max,
	// unless Hard. Source: gRPC A6 (0.8 to 1.2), and others.
	Proportional

	jitters // number of kinds
)

// Backoff is exponential back-off with one of the published kinds of jitter: v =
// min(Base*Factor^(n-1), Max) for the n-th retry, then the jitter. It never stops. A Retry below 1
// has no delay. Results beyond the longest Duration are that.
type Backoff struct {
	// Base is the first delay, before jitter.
	Base time.Duration
	// Factor is the growth. 0 means 2; 1 keeps the delay as it is.
	Factor float64
	// Max is the longest v. 0: no limit.
	Max time.Duration
	// Jitter spreads. The zero value does not.
	Jitter Jitter
	// Low and High are the bounds of Proportional, as factors.
	Low, High float64
	// Hard: Max holds after the jitter too.
	Hard bool
}

// Decide always retries.
func (b Backoff) Decide(a Attempt) Decision {
	if a.Retry < 1 {
		return Decision{Retry: true}
	}
	d := Decision{Retry: true}
	u := unit(a.Rand)
	most := b.Max
	if most <= 0 {
		most = longest
	}
	switch b.Jitter {
	case Decorrelated, DecorrelatedSmithy:
		before := time.Duration(a.Last.Step)
		if before <= 0 {
			before = b.Base
		}
		width := 3 * float64(before)
		if b.Jitter == Decorrelated {
			width -= float64(b.Base)
		}
		d.Delay = min(duration(float64(b.Base)+u*width), most)
		d.Step = uint64(d.Delay)
	case DecorrelatedV2:
		t := float64(a.Retry-1) + u
		next := math.Exp2(t) * math.Tanh(math.Sqrt(4*t))
		d.Delay = most
		if !math.IsInf(next, 1) {
			d.Delay = min(duration((next-math.Float64frombits(a.Last.Step))/1.4*float64(b.Base)), most)
		}
		d.Step = math.Float64bits(next)
	case FullJitter:
		v := b.plain(a.Retry, most)
		d.Delay = min(duration(u*float64(v)), v)
	case EqualJitter:
		v := b.plain(a.Retry, most)
		half := float64(v) / 2
		d.Delay = min(duration(half+u*half), v)
	case Proportional:
		d.Delay = duration(float64(b.plain(a.Retry, most)) * (b.Low + u*(b.High-b.Low)))
		if b.Hard {
			d.Delay = min(d.Delay, most)
		}
	default:
		d.Delay = b.plain(a.Retry, most)
	}
	return d
}

// plain is v.
func (b Backoff) plain(n int, most time.Duration) time.Duration {
	switch b.Factor {
	case 1:
		return min(b.Base, most)
	case 0, 2:
		switch {
		case b.Base <= 0:
			return 0
		case n > 63 || b.Base > most>>(n-1):
			return most
		}
		return b.Base << (n - 1)
	}
	return min(duration(float64(b.Base)*math.Pow(b.Factor, float64(n-1))), most)
}

// Validate reports the first parameter that makes no sense.
func (b Backoff) Validate() error {
	switch {
	case b.Base < 0:
		return invalid("Backoff.Base is negative; give the first delay")
	case b.Factor != 0 && !(b.Factor >= 1 && b.Factor <= math.MaxFloat64):
		return invalid("Backoff.Factor is below 1; give 1 or more, or 0 for 2")
	case b.Max < 0:
		return invalid("Backoff.Max is negative; give a duration, 0 for no limit")
	case b.Max > 0 && b.Max < b.Base:
		return invalid("Backoff.Max is below Base; give Base or more")
	case b.Jitter >= jitters:
		return invalid("Backoff.Jitter is not one of the constants; use FullJitter")
	case b.Jitter == Proportional && !(b.Low >= 0 && b.Low <= b.High && b.High > 0 && b.High <= math.MaxFloat64):
		return invalid("Backoff.Low and High make no range; give 0 <= Low <= High, and High above 0")
	case b.Jitter != Proportional && (b.Low != 0 || b.High != 0):
		return invalid("Backoff.Low and High are for Proportional jitter only; leave them 0")
	case b.Base == 0:
		return invalid("Backoff.Base is 0, so every delay would be 0; give the first delay, or use Immediately{}")
	case b.Jitter == Proportional && float64(b.Base)*b.High < 1:
		return invalid("Backoff.High is too small, so every delay would be 0; give a factor such as 1.2")
	}
	return nil
}

const longest = time.Duration(math.MaxInt64)

// unit is a draw as a fraction. The greatest draws round to 1.
func unit(draw uint64) float64 { return float64(draw) / (1 << 64) }

// duration is ns without overflow; what is not a number or negative is 0.
func duration(ns float64) time.Duration {
	switch {
	case ns >= math.MaxInt64:
		return longest
	case ns > 0:
		return time.Duration(ns)
	}
	return 0
}

// Fixed waits the same each time, with Jitter as a fraction of it in both directions.
type Fixed struct {
	Delay time.Duration
	// Jitter spreads the delay from Delay*(1-Jitter) to Delay*(1+Jitter).
	Jitter float64
}

// Decide always retries.
func (f Fixed) Decide(a Attempt) Decision {
	return Decision{Retry: true, Delay: spread(f.Delay, f.Jitter, a.Rand)}
}

// Validate reports the first parameter that makes no sense.
func (f Fixed) Validate() error {
	switch {
	case f.Delay < 0:
		return invalid("Fixed.Delay is negative; give the delay")
	case !(f.Jitter >= 0 && f.Jitter <= 1):
		return invalid("Fixed.Jitter is out of range; give a fraction from 0 to 1")
	case f.Delay == 0:
		return invalid("Fixed.Delay is 0; give the delay, or use Immediately{} for none")
	}
	return nil
}

// Incremental waits Step longer each time: the least of n*Step and Max for the n-th retry, with
// Jitter as in Fixed, which may go past Max.
type Incremental struct {
	Step time.Duration
	// Max is the longest delay before jitter. 0: no limit.
	Max    time.Duration
	Jitter float64
}

// Decide always retries.
func (i Incremental) Decide(a Attempt) Decision {
	most := i.Max
	if most <= 0 {
		most = longest
	}
	delay := most
	if n := time.Duration(max(a.Retry, 1)); i.Step <= most/n {
		delay = n * i.Step
	}
	return Decision{Retry: true, Delay: spread(delay, i.Jitter, a.Rand)}
}

// Validate reports the first parameter that makes no sense.
func (i Incremental) Validate() error {
	switch {
	case i.Step < 0:
		return invalid("Incremental.Step is negative; give the first delay")
	case i.Max < 0:
		return invalid("Incremental.Max is negative; give a duration, 0 for no limit")
	case i.Max > 0 && i.Max < i.Step:
		return invalid("Incremental.Max is below Step; give Step or more")
	case !(i.Jitter >= 0 && i.Jitter <= 1):
		return invalid("Incremental.Jitter is out of range; give a fraction from 0 to 1")
	case i.Step == 0:
		return invalid("Incremental.Step is 0, so every delay would be 0; give the first delay, or use Immediately{}")
	}
	return nil
}

// spread is d*(1-f) to d*(1+f).
func spread(d time.Duration, f float64, draw uint64) time.Duration {
	if f == 0 {
		return d
	}
	return duration(float64(d) * (1 - f + 2*f*unit(draw)))
}
