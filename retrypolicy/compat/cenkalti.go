package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// Cenkalti is the interval of cenkalti/backoff: a whole number of nanoseconds from
// I*(1-Randomization) to I*(1+Randomization), where I starts at Initial and grows by Multiplier, up
// to Max. With the default Randomization a delay may reach 1.5 times Max. It never stops;
// CenkaltiV4 adds the library's time limit. The zero value has the library's defaults, 500 ms, 1.5,
// 0.5 and a minute; otherwise no default applies.
//
// Source: the library's code, ExponentialBackOff.
type Cenkalti struct {
	Initial time.Duration
	// Multiplier is 1 or more.
	Multiplier float64
	// Randomization is a fraction from 0 to 1.
	Randomization float64
	// Max is the upper limit of I.
	Max time.Duration
}

// CenkaltiV4 is the complete default of cenkalti/backoff v4: no retry whose delay would end later
// than 15 minutes after the beginning.
func CenkaltiV4() retrypolicy.MaxElapsed {
	return retrypolicy.MaxElapsed{Limit: 15 * time.Minute, LookAhead: true, Policy: Cenkalti{}}
}

func (c Cenkalti) settings() Cenkalti {
	if c == (Cenkalti{}) {
		c = Cenkalti{Initial: 500 * time.Millisecond, Multiplier: 1.5, Randomization: 0.5, Max: time.Minute}
	}
	return c
}

// Decide always retries; without a series, as for the first time.
func (c Cenkalti) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return (&cenkalti{Cenkalti: c.settings()}).Decide(a)
}

// Begin begins a series, which remembers I.
func (c Cenkalti) Begin(retrypolicy.Start) retrypolicy.Series {
	return &cenkalti{Cenkalti: c.settings()}
}

// cenkalti is a series of a Cenkalti.
type cenkalti struct {
	Cenkalti
	retrypolicy.Free
	i time.Duration
}

func (s *cenkalti) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	if a.Retry <= 1 || s.i == 0 {
		s.i = s.Initial
	}
	d := retrypolicy.Decision{Retry: true, Delay: s.i}
	if f := s.Randomization; f != 0 {
		low, high := float64(s.i)*(1-f), float64(s.i)*(1+f)
		d.Delay = kit.OfFloat(low + kit.Unit(a.Rand)*(high-low+1))
	}
	s.i = min(kit.OfFloat(float64(s.i)*s.Multiplier), s.Max)
	return d
}

// Validate reports the first invalid parameter.
func (c Cenkalti) Validate() error {
	c = c.settings()
	return kit.Check("Cenkalti.",
		kit.Bad(c.Initial <= 0,
			"Initial is not positive; give a duration (a value that is not all zero has no defaults)"),
		kit.Bad(!(c.Multiplier >= 1 && c.Multiplier <= math.MaxFloat64),
			"Multiplier is below 1 or not finite; give 1 or more"),
		kit.Bad(!(c.Randomization >= 0 && c.Randomization <= 1),
			"Randomization is out of range; give a fraction from 0 to 1"),
		kit.Bad(c.Max < c.Initial, "Max is below Initial; give Initial or more"))
}
