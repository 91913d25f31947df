package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// MaxAttempts allows Total attempts, the first included, and leaves the rest to Policy.
type MaxAttempts struct {
	// Total is 1 or more; 1 never retries.
	Total  int
	Policy Policy
}

// Decide stops with OutOfAttempts when Total attempts were made.
func (m MaxAttempts) Decide(a Attempt) Decision {
	if a.Retry >= m.Total {
		return stop(OutOfAttempts)
	}
	return m.Policy.Decide(a)
}

// Observe passes on.
func (m MaxAttempts) Observe(a Attempt) { Observe(m.Policy, a) }

// Withdraw passes on.
func (m MaxAttempts) Withdraw(a Attempt) { Withdraw(m.Policy, a) }

// Admit passes on.
func (m MaxAttempts) Admit(a Attempt) Decision { return Admit(m.Policy, a) }

// Validate reports the first parameter that makes no sense.
func (m MaxAttempts) Validate() error {
	if m.Total < 1 {
		return failure.Invalid("MaxAttempts.Total is below 1; it counts the first try too")
	}
	return within("MaxAttempts.Policy", m.Policy)
}

// ElapsedMode says how MaxElapsed treats a delay that reaches over the limit.
type ElapsedMode uint8

const (
	// Strict looks at the time that has passed, so the last delay may end after the limit. Azure
	// device SDKs.
	Strict ElapsedMode = iota
	// LookAhead stops where the delay would end after the limit. cenkalti/backoff.
	LookAhead
	// Shorten cuts the last delay, so that a last attempt is made at the limit. failsafe-go.
	Shorten
)

// MaxElapsed stops when Limit has passed since the series began (Attempt.Elapsed), and leaves the
// rest to Policy.
type MaxElapsed struct {
	Limit  time.Duration
	Mode   ElapsedMode
	Policy Policy
}

// Decide stops with OutOfTime.
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

// Observe passes on.
func (m MaxElapsed) Observe(a Attempt) { Observe(m.Policy, a) }

// Withdraw passes on.
func (m MaxElapsed) Withdraw(a Attempt) { Withdraw(m.Policy, a) }

// Admit passes on.
func (m MaxElapsed) Admit(a Attempt) Decision { return Admit(m.Policy, a) }

// Validate reports the first parameter that makes no sense.
func (m MaxElapsed) Validate() error {
	switch {
	case m.Limit <= 0:
		return failure.Invalid("MaxElapsed.Limit is not positive; give the time for all tries")
	case m.Mode > Shorten:
		return failure.Invalid("MaxElapsed.Mode is not one of the constants; use Strict")
	}
	return within("MaxElapsed.Policy", m.Policy)
}

// AfterMode says how RetryAfter combines the delay that the service asked for with d, the delay of
// the policy inside.
type AfterMode uint8

const (
	// Floor: at least what the service asked for, at most Max of it.
	Floor AfterMode = iota
	// Exact: what the service asked for, at most Max of it, instead of d.
	Exact
	// Clamp: what the service asked for, but at least d and at most d + Over. The AWS SDKs of 2026,
	// with 5 s.
	Clamp
	// StopIfOver: what the service asked for instead of d, and no retry with ToldNotTo where that is
	// above Max. azcore.
	StopIfOver
)

// RetryAfter takes the wait that the service asked for (Attempt.After) into account. A negative
// one, "do not try again", stops with ToldNotTo.
//
// The device client sees to a service's wait by itself, as Floor with at most an hour; it needs no
// RetryAfter.
type RetryAfter struct {
	Mode AfterMode
	// Max is how long a wait the service can ask for. 0: no limit, which lets one answer put a device
	// to sleep for days.
	Max time.Duration
	// Over is for Clamp.
	Over time.Duration
	// Only are the Kinds after which the service's delay counts. 0: all.
	Only   KindSet
	Policy Policy
}

// Decide asks the policy inside and changes the delay.
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

// Observe passes on.
func (r RetryAfter) Observe(a Attempt) { Observe(r.Policy, a) }

// Withdraw passes on.
func (r RetryAfter) Withdraw(a Attempt) { Withdraw(r.Policy, a) }

// Admit passes on.
func (r RetryAfter) Admit(a Attempt) Decision { return Admit(r.Policy, a) }

// Validate reports the first parameter that makes no sense.
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

// SafeOnly retries only after failures of which is known that repeating does no harm (Attempt.Safe
// is SafeYes).
type SafeOnly struct{ Policy Policy }

// Decide stops with Unsafe.
func (s SafeOnly) Decide(a Attempt) Decision {
	if a.Safe != SafeYes {
		return stop(Unsafe)
	}
	return s.Policy.Decide(a)
}

// Observe passes on.
func (s SafeOnly) Observe(a Attempt) { Observe(s.Policy, a) }

// Withdraw passes on.
func (s SafeOnly) Withdraw(a Attempt) { Withdraw(s.Policy, a) }

// Admit passes on.
func (s SafeOnly) Admit(a Attempt) Decision { return Admit(s.Policy, a) }

// Validate checks the policy inside.
func (s SafeOnly) Validate() error { return within("SafeOnly.Policy", s.Policy) }
