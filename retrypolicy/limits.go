package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// MaxAttempts allows Total attempts, the first included. Policy decides within that limit.
type MaxAttempts struct {
	// Total is 1 or more; 1 makes no retries.
	Total  int
	Policy Policy
}

// Decide stops with ReasonOutOfAttempts after Total attempts.
func (m MaxAttempts) Decide(a Attempt) Decision { return m.decide(m.Policy, a) }

func (m MaxAttempts) decide(inner Policy, a Attempt) Decision {
	if a.Retry >= m.Total {
		return stop(ReasonOutOfAttempts)
	}
	return inner.Decide(a)
}

// Begin begins a series of Policy.
func (m MaxAttempts) Begin(start Start) Series {
	return Around(m, m.Policy, start, MaxAttempts.decide)
}

// Validate reports the first invalid parameter.
func (m MaxAttempts) Validate() error {
	if m.Total < 1 {
		return kit.Invalid("MaxAttempts.Total is below 1; it counts the first attempt too")
	}
	return within("MaxAttempts.Policy", m.Policy)
}

// MaxElapsed stops when Limit has passed since the series began (Attempt.Elapsed). Policy decides
// within that limit. The last delay may end after Limit, as in the Azure device SDKs.
type MaxElapsed struct {
	// Limit is above 0.
	Limit time.Duration
	// LookAhead stops if the delay would end after Limit, as cenkalti/backoff does.
	LookAhead bool
	// Shorten cuts the last delay so that the last attempt begins at Limit, as failsafe-go does. It
	// excludes LookAhead.
	Shorten bool
	Policy  Policy
}

// Decide stops with ReasonOutOfTime after Limit.
func (m MaxElapsed) Decide(a Attempt) Decision { return m.decide(m.Policy, a) }

func (m MaxElapsed) decide(inner Policy, a Attempt) Decision {
	left := m.Limit - max(a.Elapsed, 0)
	if left < 0 {
		return stop(ReasonOutOfTime)
	}
	d := inner.Decide(a)
	if d.Retry && d.Delay > left {
		switch {
		case m.LookAhead:
			return stop(ReasonOutOfTime)
		case m.Shorten:
			if d.Delay = left; left > 0 {
				d.Reason = meant
			}
		}
	}
	return d
}

// Begin begins a series of Policy.
func (m MaxElapsed) Begin(start Start) Series {
	return Around(m, m.Policy, start, MaxElapsed.decide)
}

// Validate reports the first invalid parameter.
func (m MaxElapsed) Validate() error {
	if err := kit.Check("MaxElapsed.",
		kit.Bad(m.Limit <= 0, "Limit is not positive; give the time for all attempts"),
		kit.Bad(m.LookAhead && m.Shorten, "LookAhead and Shorten are both set; set one")); err != nil {
		return err
	}
	return within("MaxElapsed.Policy", m.Policy)
}

// RetryAfter applies the wait that the service asked for (Attempt.After), if it is longer than the
// delay of Policy. A negative one, "do not try again", stops with ReasonPushback; Do stops so
// under every policy. The device client applies the service's wait itself, up to an hour.
type RetryAfter struct {
	// Max caps the wait that the service asks for. 0: no limit.
	Max time.Duration
	// Over is by how much the service's wait may exceed the delay of Policy. 0: no limit.
	Over   time.Duration
	Policy Policy
}

// Decide takes the inner policy's decision and extends its delay.
func (r RetryAfter) Decide(a Attempt) Decision { return r.decide(r.Policy, a) }

func (r RetryAfter) decide(inner Policy, a Attempt) Decision {
	if a.After < 0 {
		return stop(ReasonPushback)
	}
	d := inner.Decide(a)
	if d.Delay < 0 { // the policy is broken, and Do says so
		return d
	}
	if r.Max > 0 {
		a.After = min(a.After, r.Max)
	}
	if more := a.After - d.Delay; d.Retry && more > 0 {
		if r.Over > 0 {
			more = min(more, r.Over)
		}
		d.Delay += more
	}
	return d
}

// Begin begins a series of Policy.
func (r RetryAfter) Begin(start Start) Series {
	return Around(r, r.Policy, start, RetryAfter.decide)
}

// Unwrap returns Policy.
func (r RetryAfter) Unwrap() Policy { return r.Policy }

// Validate reports the first invalid parameter.
func (r RetryAfter) Validate() error {
	if err := kit.Check("RetryAfter.",
		kit.Bad(r.Max < 0, "Max is negative; give a duration, 0 for no limit"),
		kit.Bad(r.Over < 0, "Over is negative; give 0 or more")); err != nil {
		return err
	}
	return within("RetryAfter.Policy", r.Policy)
}

// SafeOnly retries only if a repetition does no harm (Attempt.Safe is SafeYes), for an operation of
// Do that must not happen twice. The device client does not set Attempt.Safe.
type SafeOnly struct{ Policy Policy }

// Decide stops with ReasonUnsafe unless Attempt.Safe is SafeYes.
func (s SafeOnly) Decide(a Attempt) Decision { return s.decide(s.Policy, a) }

func (s SafeOnly) decide(inner Policy, a Attempt) Decision {
	if a.Safe != SafeYes {
		return stop(ReasonUnsafe)
	}
	return inner.Decide(a)
}

// Unwrap returns Policy.
func (s SafeOnly) Unwrap() Policy { return s.Policy }

// Begin begins a series of Policy.
func (s SafeOnly) Begin(start Start) Series {
	return Around(s, s.Policy, start, SafeOnly.decide)
}

// Validate checks the inner policy.
func (s SafeOnly) Validate() error { return within("SafeOnly.Policy", s.Policy) }
