package retrypolicy

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// Jitter names a published way to randomize delays. Take JitterFull, which spreads many clients
// best, or JitterEqual if no delay may be near 0; the others are what the named library does. v is
// the delay without jitter, and U a uniform draw from 0 to 1.
type Jitter uint8

const (
	// JitterNone: v.
	JitterNone Jitter = iota
	// JitterFull: U*v, which can be 0. Source: Brooker, "Exponential Backoff And Jitter", AWS
	// Architecture Blog, 2015; the AWS SDKs.
	JitterFull
	// JitterEqual: v/2 + U*v/2. Source: Brooker.
	JitterEqual
	// JitterDecorrelated: the smaller of Max and a draw between Base and three times the previous
	// delay, at first Base. Source: Brooker.
	JitterDecorrelated
	// JitterDecorrelatedSmithy: the smaller of Max and Base + U*3*(previous delay, at first Base).
	// Source: the code of smithy-python.
	JitterDecorrelatedSmithy
	// JitterDecorrelatedV2: (f(t) - previous f)/1.4 * Base with t = n-1+U and f(t) = 2^t *
	// tanh(sqrt(4t)), smoothly around v. Factor is ignored. Source: Polly v8.
	JitterDecorrelatedV2
	// JitterProportional: whole nanoseconds from v*Low to v*High, which may exceed Max. Source: gRPC
	// A6 (0.8 to 1.2), cenkalti/backoff.
	JitterProportional

	jitters // number of kinds
)

// Backoff is exponential back-off with a published jitter: the delay before the n-th retry is v =
// min(Base*Factor^(n-1), Max), to which the jitter is applied. It never stops. A Retry below 1 has
// no delay.
type Backoff struct {
	// Base is the first delay before jitter, above 0.
	Base time.Duration
	// Factor is the growth per retry. 0 means 2; 1 keeps the delay constant.
	Factor float64
	// Max is the upper limit of v. 0: no limit.
	Max time.Duration
	// Jitter randomizes the delay. The zero value is JitterNone.
	Jitter Jitter
	// Low and High are the bounds of JitterProportional, as factors.
	Low, High float64
}

// Decide always retries.
func (b Backoff) Decide(a Attempt) Decision {
	d := Decision{Retry: true}
	if a.Retry < 1 {
		return d
	}
	if b.remembers() {
		return (&decorrelated{Backoff: b}).Decide(a)
	}
	v, u := kit.Exponential(b.Base, b.Factor, a.Retry, b.most()), kit.Unit(a.Rand)
	switch b.Jitter {
	case JitterFull:
		d.Delay = min(kit.OfFloat(u*float64(v)), v)
	case JitterEqual:
		half := float64(v) / 2
		d.Delay = min(kit.OfFloat(half+u*half), v)
	case JitterProportional:
		low, high := float64(v)*b.Low, float64(v)*b.High
		d.Delay = kit.OfFloat(min(low+u*(high-low+1), high))
	default:
		d.Delay = v
	}
	return d
}

// remembers reports whether the jitter depends on the previous delay.
func (b Backoff) remembers() bool {
	return b.Jitter >= JitterDecorrelated && b.Jitter <= JitterDecorrelatedV2
}

func (b Backoff) most() time.Duration {
	if b.Max <= 0 {
		return kit.Longest
	}
	return b.Max
}

// Begin begins a series for the kinds of jitter that depend on the previous delay.
func (b Backoff) Begin(Start) Series {
	if !b.remembers() {
		return nil
	}
	return &decorrelated{Backoff: b}
}

type decorrelated struct {
	Backoff
	Free
	before time.Duration // the previous delay
	f      float64       // the previous f of JitterDecorrelatedV2
}

func (s *decorrelated) Decide(a Attempt) Decision {
	if a.Retry < 1 {
		return Decision{Retry: true}
	}
	if a.Retry == 1 {
		s.before, s.f = s.Base, 0
	}
	d, u, most := Decision{Retry: true, Delay: s.most()}, kit.Unit(a.Rand), s.most()
	if s.Jitter == JitterDecorrelatedV2 {
		t := float64(a.Retry-1) + u
		next := math.Exp2(t) * math.Tanh(math.Sqrt(4*t))
		if !math.IsInf(next, 1) {
			d.Delay = min(kit.OfFloat((next-s.f)/1.4*float64(s.Base)), most)
		}
		s.f = next
		return d
	}
	before := s.before
	if before <= 0 {
		before = s.Base
	}
	width := 3 * float64(before)
	if s.Jitter == JitterDecorrelated {
		width -= float64(s.Base)
	}
	d.Delay = min(kit.OfFloat(float64(s.Base)+u*width), most)
	s.before = d.Delay
	return d
}

// Validate reports the first invalid parameter.
func (b Backoff) Validate() error {
	return kit.Check("Backoff.",
		kit.Bad(b.Base < 0, "Base is negative; give the first delay"),
		kit.Bad(b.Factor != 0 && !(b.Factor >= 1 && b.Factor <= math.MaxFloat64),
			"Factor is below 1 or not finite; give 1 or more, or 0 for 2"),
		kit.Bad(b.Max < 0, "Max is negative; give a duration, 0 for no limit"),
		kit.Bad(b.Max > 0 && b.Max < b.Base, "Max is below Base; give Base or more"),
		kit.Bad(b.Jitter >= jitters, "Jitter is not one of the constants; use JitterFull"),
		kit.Bad(b.Jitter == JitterProportional && !(b.Low >= 0 && b.Low <= b.High && b.High > 0 && b.High <= math.MaxFloat64),
			"Low and High make no range; give 0 <= Low <= High, and High above 0"),
		kit.Bad(b.Jitter != JitterProportional && (b.Low != 0 || b.High != 0),
			"Low and High are for Proportional jitter only; leave them 0"),
		kit.Bad(b.Base == 0, "Base is 0, so every delay would be 0; give the first delay, or use Immediately{}"),
		kit.Bad(b.Jitter == JitterProportional && float64(b.Base)*b.High < 1,
			"High is too small, so every delay would be 0; give a factor such as 1.2"))
}

// Fixed waits the same delay before each retry, with a symmetric jitter. It never stops.
type Fixed struct {
	// Delay is above 0.
	Delay time.Duration
	// Jitter is a fraction from 0 to 1: the delay is drawn from Delay*(1-Jitter) to Delay*(1+Jitter).
	// 0: no jitter.
	Jitter float64
}

// Decide always retries.
func (f Fixed) Decide(a Attempt) Decision {
	return Decision{Retry: true, Delay: kit.Spread(f.Delay, f.Jitter, a.Rand)}
}

// Validate reports the first invalid parameter.
func (f Fixed) Validate() error {
	return kit.Check("Fixed.",
		kit.Bad(f.Delay < 0, "Delay is negative; give the delay"),
		kit.Bad(!(f.Jitter >= 0 && f.Jitter <= 1), "Jitter is out of range; give a fraction from 0 to 1"),
		kit.Bad(f.Delay == 0, "Delay is 0; give the delay, or use Immediately{} for none"))
}

// Incremental waits Step longer each time: min(n*Step, Max) for the n-th retry. It never stops.
type Incremental struct {
	// Step is the first delay and the growth, above 0.
	Step time.Duration
	// Max is the longest delay before jitter. 0: no limit.
	Max time.Duration
	// Jitter is a fraction as in Fixed. The delay may exceed Max by it.
	Jitter float64
}

// Decide always retries.
func (i Incremental) Decide(a Attempt) Decision {
	most := i.Max
	if most <= 0 {
		most = kit.Longest
	}
	d := most
	if n := time.Duration(max(a.Retry, 1)); i.Step <= most/n {
		d = n * i.Step
	}
	return Decision{Retry: true, Delay: kit.Spread(d, i.Jitter, a.Rand)}
}

// Validate reports the first invalid parameter.
func (i Incremental) Validate() error {
	return kit.Check("Incremental.",
		kit.Bad(i.Step < 0, "Step is negative; give the first delay"),
		kit.Bad(i.Max < 0, "Max is negative; give a duration, 0 for no limit"),
		kit.Bad(i.Max > 0 && i.Max < i.Step, "Max is below Step; give Step or more"),
		kit.Bad(!(i.Jitter >= 0 && i.Jitter <= 1), "Jitter is out of range; give a fraction from 0 to 1"),
		kit.Bad(i.Step == 0, "Step is 0, so every delay would be 0; give the first delay, or use Immediately{}"))
}
