package compat

import (
	"cmp"
	"math"
	"math/bits"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// Failsafe is the retry policy of failsafe-go. The zero value is the library's default: two retries
// without delay. The jitter is added in both directions and may exceed Max. A wait that the service
// asked for with a 429 or 503 replaces the delay, gets the jitter too, and does not affect the
// growth. The library's time limit is retrypolicy.MaxElapsed with Shorten.
//
// Source: the library's code, package retrypolicy.
type Failsafe struct {
	// Retries is the number of retries. 0: 2. Negative: no limit.
	Retries int
	Delay   time.Duration
	// Max makes the delay grow from Delay, by Factor, up to Max.
	Max time.Duration
	// Factor is the growth per retry. 0: 2.
	Factor float64
	// RandomMax makes the delay a draw from Delay to RandomMax. It excludes Max.
	RandomMax time.Duration
	// Jitter spreads by this time: delay + (1-2U)*Jitter. A delay of 0 has none.
	Jitter time.Duration
	// JitterFactor spreads by this fraction: delay * (1 + (1-2U)*JitterFactor).
	JitterFactor float64
}

// Decide stops with OutOfAttempts after Retries.
func (f Failsafe) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return (&failsafe{Failsafe: f}).Decide(a)
}

// Begin begins a series if the delays grow.
func (f Failsafe) Begin(retrypolicy.Start) retrypolicy.Series {
	if f.Max == 0 {
		return nil
	}
	return &failsafe{Failsafe: f}
}

type failsafe struct {
	Failsafe
	retrypolicy.Free
	before time.Duration // the latest computed delay, before jitter
}

func (f *failsafe) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	n, retries := max(a.Retry, 1), cmp.Or(f.Retries, 2)
	if retries > 0 && n > retries {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	u := kit.Unit(a.Rand)
	d := again(f.Delay)
	switch {
	case a.After > 0 && overloaded(a):
		d.Delay = a.After
	case f.Max > 0:
		if n > 1 && f.before > 0 {
			d.Delay = max(min(kit.OfFloat(float64(f.before)*cmp.Or(f.Factor, 2)), f.Max), 0)
		}
		f.before = d.Delay
	case f.RandomMax > 0 && f.Delay > 0:
		d.Delay = min(kit.OfFloat(float64(f.Delay)+u*float64(f.RandomMax-f.Delay)), f.RandomMax)
		u = kit.Unit(bits.Reverse64(a.Rand)) // for the jitter, from the other end of the draw
	}
	switch {
	case d.Delay == 0:
	case f.Jitter != 0:
		d.Delay = kit.OfFloat(float64(d.Delay) + (1-2*u)*float64(f.Jitter))
	case f.JitterFactor != 0:
		d.Delay = kit.OfFloat(float64(d.Delay) * (1 + (1-2*u)*f.JitterFactor))
	}
	return d
}

// Validate reports the first invalid parameter.
func (f Failsafe) Validate() error {
	return kit.Check("Failsafe.",
		kit.Bad(f.Delay < 0, "Delay is negative; give 0 or more"),
		kit.Bad(f.Max < 0 || f.Max > 0 && f.Max < f.Delay, "Max is below Delay; give Delay or more, 0 for no growth"),
		kit.Bad(f.Factor != 0 && !(f.Factor >= 1 && f.Factor <= math.MaxFloat64),
			"Factor is below 1 or not finite; give 1 or more, or 0 for 2"),
		kit.Bad(f.RandomMax < 0 || f.RandomMax > 0 && f.RandomMax < f.Delay,
			"RandomMax is below Delay; give Delay or more, 0 for no random delay"),
		kit.Bad(f.RandomMax > 0 && f.Max > 0, "RandomMax does not go with Max; leave one of them 0"),
		kit.Bad(f.Jitter < 0, "Jitter is negative; give 0 or more"),
		kit.Bad(!(f.JitterFactor >= 0 && f.JitterFactor <= 1),
			"JitterFactor is out of range; give a fraction from 0 to 1"),
		kit.Bad(f.Jitter != 0 && f.JitterFactor != 0, "Jitter and JitterFactor are both set; give one"),
		kit.Bad(f.Delay == 0 && f != (Failsafe{}),
			"Delay is 0, so every delay would be 0; give a delay, or use Immediately{} in MaxAttempts"))
}
