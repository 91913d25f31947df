package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// ExponentialBackoffWithJitter is the back-off that the Azure device SDKs document:
//
//	F(x) = min(Cmin + (2^(x-1) - 1) * rand(C*(1-Jd), C*(1-Ju)), Cmax)
//
// with x = 1 for the first retry and rand uniform in [C*(1-Jd), C*(1-Ju)).
//
// A zero field has the documented constant. So the zero value gives 100 ms, 150 to 175 ms, 250 to
// 325 ms, 450 to 625 ms and so on, up to 10 s. For an almost immediate first retry set Cmin to 1
// ns. The first retry comes after exactly Cmin, and retries at the cap after exactly Cmax, so the
// formula alone does not spread a fleet. It never stops.
//
// Source: the SDKs' retry document. compat.AzureJava is what the Java SDK's code computes.
type ExponentialBackoffWithJitter struct {
	// C scales the growth. 0: 100 ms.
	C time.Duration
	// Cmin is the first and shortest delay. It does not scale the growth; C does. 0: 100 ms.
	Cmin time.Duration
	// Cmax is the longest delay. 0: 10 s.
	Cmax time.Duration
	// Jd and Ju are the bounds of rand, 0 <= Ju <= Jd <= 1. Both 0: 0.5 and 0.25. A negative Jd with
	// Ju 0: no jitter, rand is C.
	Jd, Ju float64
}

// documented holds the constants that replace zero fields.
var documented = ExponentialBackoffWithJitter{
	C: 100 * time.Millisecond, Cmin: 100 * time.Millisecond, Cmax: 10 * time.Second, Jd: 0.5, Ju: 0.25,
}

// Decide always retries, after F(a.Retry) in whole nanoseconds: the bounds of rand are rounded to
// nearest, its draw is rounded down. A Retry below 1 counts as 1. With parameters that Validate
// refuses it does not panic, but its delays are meaningless.
func (e ExponentialBackoffWithJitter) Decide(a Attempt) Decision {
	return Decision{Retry: true, Delay: e.delay(a.Retry, a.Rand)}
}

// delay computes F(x) for a draw. It is a separate function so that Decide stays inlinable into
// calls through an interface, which saves a copy of the Attempt.
func (e *ExponentialBackoffWithJitter) delay(x int, draw uint64) time.Duration {
	c, least, most := e.bounds()
	jd, ju := e.Jd, e.Ju
	if jd == 0 && ju == 0 {
		jd, ju = documented.Jd, documented.Ju
	}
	c = max(c, 0)
	r := c
	if jd >= 0 {
		low := c - times.Part(c, jd)
		high := c - times.Part(c, ju)
		r = low
		if high > low {
			r += times.Drawn(high-low, draw)
		}
	}
	return kit.Growth(x, uint64(r), least, most)
}

// bounds returns C, Cmin and Cmax, with the documented constants for zero fields.
func (e *ExponentialBackoffWithJitter) bounds() (c, least, most time.Duration) {
	c, least, most = e.C, e.Cmin, e.Cmax
	if c == 0 {
		c = documented.C
	}
	if least == 0 {
		least = documented.Cmin
	}
	if most == 0 {
		most = documented.Cmax
	}
	return c, least, most
}

// Validate reports the first invalid parameter, as a *transport.Error of Kind Invalid.
func (e ExponentialBackoffWithJitter) Validate() error {
	_, least, most := e.bounds()
	plain := e.Jd < 0 && e.Ju == 0
	return kit.Check("ExponentialBackoffWithJitter.",
		kit.Bad(e.C < 0, "C is negative; give a duration, 0 for 100 ms"),
		kit.Bad(e.Cmin < 0, "Cmin is negative; give a duration, 0 for 100 ms"),
		kit.Bad(most < least, "Cmax is below Cmin; give Cmin or more (0 is 100 ms for Cmin and 10 s for Cmax)"),
		kit.Bad(!plain && !(e.Ju >= 0 && e.Ju <= e.Jd && e.Jd <= 1), "Jd and Ju make no range; give 0 <= Ju <= Jd <= 1"))
}
