package retrypolicy

import (
	"math"
	"time"
)

// Failsafe is the retry policy of failsafe-go: two retries without delay, unless settings say more. The delay of the n-th retry is min(Delay*Factor^(n-1), Max) with Max, a draw from Delay to RandomMax with RandomMax,
// and Delay otherwise; then comes the jitter, in both directions, which may go past Max. A wait that the service asked for counts instead of the delay, and gets the jitter too; this library's HTTP
// helper knows such a wait after 429 and 503 only. Its limit of time is MaxElapsed with Shorten.
//
// Source: the library's code, package retrypolicy.
type Failsafe struct {
	// Retries is how many retries there may be. 0: 2. Negative: no limit.
	Retries int
	Delay   time.Duration
	// Max makes the delay grow, up to it.
	Max time.Duration
	// Factor is the growth. 0: 2.
	Factor float64
	// RandomMax makes the delay random, from Delay up to it.
	RandomMax time.Duration
	// Jitter spreads by this time: Delay + (1-2U)*Jitter.
	Jitter time.Duration
	// JitterFactor spreads by this fraction: Delay * (1 + (1-2U)*JitterFactor).
	JitterFactor float64
}

// Decide stops with OutOfAttempts.
func (f Failsafe) Decide(a Attempt) Decision {
	n := max(a.Retry, 1)
	retries := f.Retries
	if retries == 0 {
		retries = 2
	}
	if retries > 0 && n > retries {
		return stop(OutOfAttempts)
	}
	u := unit(a.Rand)
	delay := f.Delay
	switch {
	case a.After > 0 && overloaded(a):
		delay = a.After
	case f.Max > 0:
		delay = Backoff{Base: f.Delay, Factor: f.Factor}.plain(n, f.Max)
	case f.RandomMax > 0:
		// Jitter does not go with RandomMax, so one draw serves.
		delay = min(duration(float64(f.Delay)+u*float64(f.RandomMax-f.Delay)), f.RandomMax)
	}
	switch {
	case f.Jitter != 0:
		delay = duration(float64(delay) + (1-2*u)*float64(f.Jitter))
	case f.JitterFactor != 0:
		delay = duration(float64(delay) * (1 + (1-2*u)*f.JitterFactor))
	}
	return Decision{Retry: true, Delay: delay}
}

// Validate reports the first parameter that makes no sense.
func (f Failsafe) Validate() error {
	switch {
	case f.Delay < 0:
		return invalid("Failsafe.Delay is negative; give 0 or more")
	case f.Max < 0 || f.Max > 0 && f.Max < f.Delay:
		return invalid("Failsafe.Max is below Delay; give Delay or more, 0 for no growth")
	case f.Factor != 0 && !(f.Factor >= 1 && f.Factor <= math.MaxFloat64):
		return invalid("Failsafe.Factor is below 1; give 1 or more, or 0 for 2")
	case f.RandomMax < 0 || f.RandomMax > 0 && f.RandomMax < f.Delay:
		return invalid("Failsafe.RandomMax is below Delay; give Delay or more, 0 for no random delay")
	case f.RandomMax > 0 && (f.Max > 0 || f.Jitter != 0 || f.JitterFactor != 0):
		return invalid("Failsafe.RandomMax does not go with Max or jitter; leave them 0")
	case f.Jitter < 0:
		return invalid("Failsafe.Jitter is negative; give 0 or more")
	case !(f.JitterFactor >= 0 && f.JitterFactor <= 1):
		return invalid("Failsafe.JitterFactor is out of range; give a fraction from 0 to 1")
	case f.Jitter != 0 && f.JitterFactor != 0:
		return invalid("Failsafe.Jitter and JitterFactor are both set; give one")
	}
	return nil
}
