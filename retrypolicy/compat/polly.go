package compat

import (
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// PollyCurve names a back-off of Polly. n counts retries, from 1.
type PollyCurve uint8

const (
	PollyConstant    PollyCurve = iota // Delay
	PollyLinear                        // n*Delay
	PollyExponential                   // 2^(n-1)*Delay; with jitter DecorrelatedV2

	pollyCurves // number of curves
)

// Polly is the retry strategy of Polly v8 for .NET. If all numbers are zero, the library's defaults
// apply: three retries, 2 s. Otherwise no default applies. The library's delay generator, which
// overrides all of them, is a retrypolicy.Func.
//
// Source: the library's code, RetryHelper.
type Polly struct {
	// Retries is the number of retries, 1 or more. math.MaxInt32: no limit.
	Retries int
	Delay   time.Duration
	// Max is the longest delay, after jitter. 0: no limit.
	Max   time.Duration
	Curve PollyCurve
	// Jitter adds 25 % in both directions, or DecorrelatedV2 with PollyExponential.
	Jitter bool
}

func (p Polly) settings() Polly {
	if p.Retries == 0 && p.Delay == 0 && p.Max == 0 {
		p.Retries, p.Delay = 3, 2*sec
	}
	return p
}

// Decide stops with OutOfAttempts after Retries.
func (p Polly) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	p = p.settings()
	a.Retry = max(a.Retry, 1)
	return p.decide(p.exponential().Decide(a), a)
}

// exponential returns the curve of PollyExponential.
func (p Polly) exponential() retrypolicy.Backoff {
	b := retrypolicy.Backoff{Base: p.Delay}
	if p.Jitter && p.Curve == PollyExponential {
		b.Jitter = retrypolicy.JitterDecorrelatedV2
	}
	return b
}

// decide applies the other curves and the limits to the decision of PollyExponential.
func (p Polly) decide(d retrypolicy.Decision, a retrypolicy.Attempt) retrypolicy.Decision {
	if a.Retry > p.Retries && p.Retries != math.MaxInt32 {
		return stop(retrypolicy.ReasonOutOfAttempts)
	}
	quarter := 0.0
	if p.Jitter {
		quarter = 0.25
	}
	switch p.Curve {
	case PollyConstant:
		d = retrypolicy.Fixed{Delay: p.Delay, Jitter: quarter}.Decide(a)
	case PollyLinear:
		d = retrypolicy.Incremental{Step: p.Delay, Jitter: quarter}.Decide(a)
	case PollyExponential:
	}
	if p.Max > 0 {
		d.Delay = min(d.Delay, p.Max)
	}
	return d
}

// Begin begins a series for DecorrelatedV2.
func (p Polly) Begin(start retrypolicy.Start) retrypolicy.Series {
	p = p.settings()
	if series := p.exponential().Begin(start); series != nil {
		return &pollySeries{series, p}
	}
	return nil
}

type pollySeries struct {
	retrypolicy.Series // of the exponential curve
	p                  Polly
}

func (s *pollySeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	a.Retry = max(a.Retry, 1)
	return s.p.decide(s.Series.Decide(a), a)
}

// Validate reports the first invalid parameter.
func (p Polly) Validate() error {
	p = p.settings()
	return kit.Check("Polly.",
		kit.Bad(p.Retries < 1,
			"Retries is below 1; give the number of retries (a value whose numbers are not all zero has no defaults)"),
		kit.Bad(p.Delay < 0, "Delay is negative; give the delay"),
		kit.Bad(p.Max < 0, "Max is negative; give a duration, 0 for no limit"),
		kit.Bad(p.Curve >= pollyCurves, "Curve is not one of the constants; use PollyConstant"),
		kit.Bad(p.Delay == 0, "Delay is 0; give the delay, or use Immediately{} in MaxAttempts for none"))
}
