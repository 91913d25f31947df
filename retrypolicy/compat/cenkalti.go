package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// Cenkalti is the back-off of cenkalti/backoff with its defaults: half a second, 1.5 times as much
// each time, up to a minute, each with 50 % of jitter, which may exceed the minute. It never stops.
// To change the value: Initial is Base, Multiplier is Factor, and a RandomizationFactor r is Low =
// 1
// - r and High = 1 + r, or JitterNone for 0.
//
// Source: the library's code, ExponentialBackOff.
func Cenkalti() retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: 500 * time.Millisecond, Factor: 1.5, Max: time.Minute,
		Jitter: retrypolicy.JitterProportional, Low: 0.5, High: 1.5}
}

// CenkaltiV4 is the complete default of cenkalti/backoff v4: no retry whose delay would end later
// than 15 minutes after the beginning.
func CenkaltiV4() retrypolicy.MaxElapsed {
	return retrypolicy.MaxElapsed{Limit: 15 * time.Minute, LookAhead: true, Policy: Cenkalti()}
}
