package retrypolicy

import (
	"math"
	"time"
)

// PollyCurve names a back-off of Polly.
type PollyCurve uint8

const (
	// PollyConstant: Delay.
	PollyConstant PollyCurve = iota
	// PollyLinear: n*Delay.
	PollyLinear
	// PollyExponential: 2^(n-1)*Delay; with jitter DecorrelatedV2.
	PollyExponential

	pollyCurves // number of curves
)

// Polly is the retry strategy of Polly v8 for .NET, with n = 1 for the first retry. Max holds after
// jitter. A value whose numbers are all zero has the library's defaults: three retries, 2 s.
// Otherwise the numbers are taken as they stand. The library's generator of delays, which overrides
// all of them, is RetryAfter with Exact around it.
//
// Source: the library's code, RetryHelper.
type Polly struct {
	// Retries is how many retries there may be, 1 or more. math.MaxInt32: no limit.
	Retries int
	Delay   time.Duration
	// Max is the longest delay. 0: no limit.
	Max   time.Duration
	Curve PollyCurve
	// Jitter: 25 % in both directions, or DecorrelatedV2 with PollyExponential.
	Jitter bool
}

func (p Polly) settings() Polly {
	if p.Retries == 0 && p.Delay == 0 && p.Max == 0 {
		p.Retries, p.Delay = 3, 2*time.Second
	}
	return p
}

// Decide stops with OutOfAttempts.
func (p Polly) Decide(a Attempt) Decision {
	p = p.settings()
	a.Retry = max(a.Retry, 1)
	if a.Retry > p.Retries && p.Retries != math.MaxInt32 {
		return stop(OutOfAttempts)
	}
	quarter := 0.0
	jitter := NoJitter
	if p.Jitter {
		quarter, jitter = 0.25, DecorrelatedV2
	}
	var d Decision
	switch p.Curve {
	case PollyConstant:
		d = Fixed{Delay: p.Delay, Jitter: quarter}.Decide(a)
	case PollyLinear:
		d = Incremental{Step: p.Delay, Jitter: quarter}.Decide(a)
	default:
		d = Backoff{Base: p.Delay, Jitter: jitter}.Decide(a)
	}
	if p.Max > 0 {
		d.Delay = min(d.Delay, p.Max)
	}
	return d
}

// Validate reports the first parameter that makes no sense.
func (p Polly) Validate() error {
	p = p.settings()
	switch {
	case p.Retries < 1:
		return invalid("Polly.Retries is below 1; give the number of retries (a value whose numbers are not all zero has " +
			"no defaults)")
	case p.Delay < 0:
		return invalid("Polly.Delay is negative; give the delay")
	case p.Max < 0:
		return invalid("Polly.Max is negative; give a duration, 0 for no limit")
	case p.Curve >= pollyCurves:
		return invalid("Polly.Curve is not one of the constants; use PollyConstant")
	case p.Delay == 0:
		return invalid("Polly.Delay is 0; give the delay, or use Immediately{} in MaxAttempts for none (a value whose " +
			"numbers are not all zero has no defaults)")
	}
	return nil
}
