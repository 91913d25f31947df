package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
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

// Decide always retries. Decision.Step carries I.
func (c Cenkalti) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	c = c.settings()
	i := c.Initial
	if a.Retry > 1 && a.Last.Step != 0 {
		i = max(min(time.Duration(min(a.Last.Step, math.MaxInt64)), c.Max), c.Initial)
	}
	d := retrypolicy.Decision{Retry: true, Delay: i, Step: uint64(min(delay.OfFloat(float64(i)*c.Multiplier), c.Max))}
	if f := c.Randomization; f != 0 {
		low, high := float64(i)*(1-f), float64(i)*(1+f)
		d.Delay = delay.OfFloat(low + delay.Unit(a.Rand)*(high-low+1))
	}
	return d
}

// Validate reports the first invalid parameter.
func (c Cenkalti) Validate() error {
	c = c.settings()
	switch {
	case c.Initial <= 0:
		return failure.Invalid("Cenkalti.Initial is not positive; give a duration (a value that is not all zero has no " +
			"defaults)")
	case !(c.Multiplier >= 1 && c.Multiplier <= math.MaxFloat64):
		return failure.Invalid("Cenkalti.Multiplier is below 1 or not finite; give 1 or more")
	case !(c.Randomization >= 0 && c.Randomization <= 1):
		return failure.Invalid("Cenkalti.Randomization is out of range; give a fraction from 0 to 1")
	case c.Max < c.Initial:
		return failure.Invalid("Cenkalti.Max is below Initial; give Initial or more")
	}
	return nil
}

// Endless reports whether the policy retries for ever.
func (Cenkalti) Endless() bool { return true }
