package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// MaxAttempts allows Total attempts, the first included. Policy decides within that limit.
type MaxAttempts struct {
	// Total is 1 or more; 1 makes no retries.
	Total  int
	Policy Policy
}

// Decide stops with OutOfAttempts after Total attempts.
func (m MaxAttempts) Decide(a Attempt) Decision {
	if a.Retry >= m.Total {
		return stop(OutOfAttempts)
	}
	return m.Policy.Decide(a)
}

// Observe forwards to Policy.
func (m MaxAttempts) Observe(a Attempt) { Observe(m.Policy, a) }

// Withdraw forwards to Policy.
func (m MaxAttempts) Withdraw(a Attempt) { Withdraw(m.Policy, a) }

// Admit forwards to Policy.
func (m MaxAttempts) Admit(a Attempt) Decision { return Admit(m.Policy, a) }

// Validate reports the first invalid parameter.
func (m MaxAttempts) Validate() error {
	if m.Total < 1 {
		return failure.Invalid("MaxAttempts.Total is below 1; it counts the first try too")
	}
	return within("MaxAttempts.Policy", m.Policy)
}

// ElapsedMode says how MaxElapsed treats a delay that would end after the limit.
type ElapsedMode uint8

const (
	// Strict checks only the elapsed time, so the last delay may end after the limit. Azure device
	// SDKs.
	Strict ElapsedMode = iota
	// LookAhead stops if the delay would end after the limit. cenkalti/backoff.
	LookAhead
	// Shorten cuts the last delay so that the last attempt begins at the limit. failsafe-go.
	Shorten
)

// MaxElapsed stops when Limit has passed since the series began (Attempt.Elapsed). Policy decides
// within that limit.
type MaxElapsed struct {
	Limit  time.Duration
	Mode   ElapsedMode
	Policy Policy
}

// Decide stops with OutOfTime after Limit, as Mode says.
func (m MaxElapsed) Decide(a Attempt) Decision {
	if a.Elapsed > m.Limit {
		return stop(OutOfTime)
	}
	d := m.Policy.Decide(a)
	left := m.Limit - max(a.Elapsed, 0)
	if d.Retry && d.Delay > left {
		switch m.Mode {
		case LookAhead:
			return refuse(m.Policy, a, d, stop(OutOfTime))
		case Shorten:
			d.Delay = left
		case Strict:
		}
	}
	return d
}

// Observe forwards to Policy.
func (m MaxElapsed) Observe(a Attempt) { Observe(m.Policy, a) }

// Withdraw forwards to Policy.
func (m MaxElapsed) Withdraw(a Attempt) { Withdraw(m.Policy, a) }

// Admit forwards to Policy.
func (m MaxElapsed) Admit(a Attempt) Decision { return Admit(m.Policy, a) }

// Validate reports the first invalid parameter.
func (m MaxElapsed) Validate() error {
	switch {
	case m.Limit <= 0:
		return failure.Invalid("MaxElapsed.Limit is not positive; give the time for all tries")
	case m.Mode > Shorten:
		return failure.Invalid("MaxElapsed.Mode is not one of the constants; use Strict")
	}
	return within("MaxElapsed.Policy", m.Policy)
}

// AfterMode says how RetryAfter combines the service's delay (Attempt.After) with d, the delay of
// the inner policy.
type AfterMode uint8

const (
	// Floor is the service's delay, capped at Max, but at least d.
	Floor AfterMode = iota
	// Exact is the service's delay, capped at Max, instead of d.
	Exact
	// Clamp is the service's delay, raised to d and capped at d + Over. The AWS SDKs of 2026 use it
	// with 5 s.
	Clamp
	// StopIfOver is the service's delay instead of d. It stops with ToldNotTo if that delay exceeds
	// Max. azcore.
	StopIfOver
)

// RetryAfter applies the wait that the service asked for (Attempt.After). If it is negative, "do
// not try again", RetryAfter stops with ToldNotTo.
//
// The device client needs no RetryAfter: it applies the service's wait itself, as Floor with at
// most an hour.
type RetryAfter struct {
	Mode AfterMode
	// Max is the longest wait that the service can ask for. 0: no limit, so that one answer can make a
	// device sleep for days.
	Max time.Duration
	// Over is the margin of Clamp.
	Over time.Duration
	// Only are the Kinds after which the service's delay is applied. 0: all.
	Only   KindSet
	Policy Policy
}

// Decide takes the inner policy's decision and changes its delay.
func (r RetryAfter) Decide(a Attempt) Decision {
	if a.After == 0 || r.Only != 0 && !r.Only.Has(a.Kind) {
		return r.Policy.Decide(a)
	}
	if a.After < 0 || r.Mode == StopIfOver && r.Max > 0 && a.After > r.Max {
		return stop(ToldNotTo)
	}
	d := r.Policy.Decide(a)
	if !d.Retry {
		return d
	}
	asked := a.After
	if r.Max > 0 {
		asked = min(asked, r.Max)
	}
	switch r.Mode {
	case Floor:
		d.Delay = max(d.Delay, asked)
	case Clamp:
		d.Delay += min(max(asked-d.Delay, 0), r.Over, delay.Longest-d.Delay)
	default:
		d.Delay = asked
	}
	return d
}

// Observe forwards to Policy.
func (r RetryAfter) Observe(a Attempt) { Observe(r.Policy, a) }

// Withdraw forwards to Policy.
func (r RetryAfter) Withdraw(a Attempt) { Withdraw(r.Policy, a) }

// Admit forwards to Policy.
func (r RetryAfter) Admit(a Attempt) Decision { return Admit(r.Policy, a) }

// Validate reports the first invalid parameter.
func (r RetryAfter) Validate() error {
	switch {
	case r.Mode > StopIfOver:
		return failure.Invalid("RetryAfter.Mode is not one of the constants; use Floor")
	case r.Max < 0:
		return failure.Invalid("RetryAfter.Max is negative; give a duration, 0 for no limit")
	case r.Over < 0:
		return failure.Invalid("RetryAfter.Over is negative; give 0 or more")
	case r.Over > 0 && r.Mode != Clamp:
		return failure.Invalid("RetryAfter.Over is for Clamp only; leave it 0")
	}
	return within("RetryAfter.Policy", r.Policy)
}

// SafeOnly retries only if a repetition does no harm (Attempt.Safe is SafeYes).
type SafeOnly struct{ Policy Policy }

// Decide stops with Unsafe unless Attempt.Safe is SafeYes.
func (s SafeOnly) Decide(a Attempt) Decision {
	if a.Safe != SafeYes {
		return stop(Unsafe)
	}
	return s.Policy.Decide(a)
}

// Observe forwards to Policy.
func (s SafeOnly) Observe(a Attempt) { Observe(s.Policy, a) }

// Withdraw forwards to Policy.
func (s SafeOnly) Withdraw(a Attempt) { Withdraw(s.Policy, a) }

// Admit forwards to Policy.
func (s SafeOnly) Admit(a Attempt) Decision { return Admit(s.Policy, a) }

// Validate checks the inner policy.
func (s SafeOnly) Validate() error { return within("SafeOnly.Policy", s.Policy) }
