package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Attempt is the input of a Policy: the number of the retry, the latest failure, and the time.
type Attempt struct {
	// Retry is the number of the retry to decide on: 1 for the first. For Series.Admit and
	// Series.Report it is the number of the attempt that is about to begin or has ended: 0 for the
	// first attempt.
	Retry int
	// Err is the latest failure.
	Err error
	// Kind is the Kind of Err: the class of the failure.
	Kind transport.Kind
	// Scope distinguishes a reconnect (Connection) from sending a message again (Operation).
	Scope transport.Scope
	// Safe says whether the operation may be repeated after the failure. The device client leaves it
	// unknown.
	Safe Safe
	// After is the wait that the service asked for. 0: none. Negative: the service asked not to retry.
	After time.Duration
	// Elapsed is the time since the connection was lost, since the first refusal of the message, or
	// since the first attempt of Do.
	Elapsed time.Duration
	// Now is the time of the call, in the caller's zone: for a time of day call its method In.
	Now time.Time
	// Rand is a draw for this decision, uniform over all values: Rand / 2^64 is a fraction in [0, 1).
	Rand uint64
}

// Decision is the output of a Policy. The zero Decision stops.
type Decision struct {
	// Retry: try again, after Delay. The caller may wait longer; see the function Decide.
	Retry bool
	// Reason says why there is no retry.
	Reason Reason
	// Delay is the wait before the retry; without one, before a polling caller may call again.
	Delay time.Duration
}

// String describes the decision, such as "retry after 1.5s" or "stop: out of attempts".
func (d Decision) String() string {
	if d.Retry {
		return "retry after " + d.Delay.String()
	}
	return "stop: " + d.Reason.String()
}

// Policy decides about retries. The caller calls Decide once for each attempt that failed and may
// be repeated. Decide must be safe for concurrent use if clients share the value. A policy that
// remembers something, or shares a budget, is Stateful too.
type Policy interface {
	Decide(a Attempt) Decision
}

// Decide asks p, and checks its answer for a caller that must not spin. From the second retry on
// the delay is at least least, unless Immediately decided: a policy may return 0 by accident, as a
// shift that overflows does. A negative delay is an error of the policy, and stops with
// ReasonNegativeDelay.
func Decide(p Policy, a Attempt, least time.Duration) Decision {
	d := p.Decide(a)
	if !d.Retry {
		return d
	}
	if d.Delay < 0 {
		return stop(ReasonNegativeDelay)
	}
	if a.Retry > 1 && d.Reason != meant {
		d.Delay = max(d.Delay, least)
	}
	d.Reason = ReasonPolicy
	return d
}

// Func is a Policy in the shape of the Azure SDKs. It takes the number of the retry (1 for the
// first) and the latest error, and returns whether to retry and after what delay.
type Func func(retry int, last error) (again bool, delay time.Duration)

// Decide calls f.
func (f Func) Decide(a Attempt) Decision {
	again, delay := f(a.Retry, a.Err)
	return Decision{Retry: again, Delay: delay}
}

// Validate refuses a nil f.
func (f Func) Validate() error {
	if f == nil {
		return kit.Invalid("Func is nil; give a function, or use NoRetry{}")
	}
	return nil
}

// Immediately always retries without a delay: a caller's least delay does not apply. Put a limit
// around it, such as MaxAttempts.
type Immediately struct{}

// Decide retries at once.
func (Immediately) Decide(Attempt) Decision { return Decision{Retry: true, Reason: meant} }

// NoRetry never retries.
type NoRetry struct{}

// Decide stops.
func (NoRetry) Decide(Attempt) Decision { return Decision{} }

// Validator is a Policy whose parameters can be invalid.
type Validator interface {
	// Validate reports the first invalid parameter, as an error of Kind Invalid that names it:
	//
	//	&transport.Error{Kind: transport.Invalid, Err: errors.New("Mine.Step is 0; give a duration")}
	Validate() error
}

// Validate checks p and all policies inside it, for code that accepts a policy; Do and the device
// client call it. A nil p is an error, and so is one that panics, as a nil pointer may. So is a
// policy of this package whose parameters make all delays 0, unless it is Immediately. It finds the
// policy inside a wrapper of your own by the method Unwrap() Policy, and refuses such a wrapper if
// it has no Begin though the policy inside has memory. One with both Begin and Validate checks what
// is inside itself.
func Validate(p Policy) (err error) {
	callback.Protect(func() { err = scrub.Cause(within("policy", p)) }, func(v any) {
		err = kit.Invalid((&callback.Error{Name: "Validate", Panic: v}).Error())
	})
	return err
}

// within validates the inner policy of a wrapper; field is the name of the wrapper's field.
func within(field string, p Policy) error {
	if p == nil {
		return kit.Invalid(field + " is nil; give a policy, NoRetry{} for none")
	}
	v, validates := p.(Validator)
	if validates {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	_, stateful := p.(Stateful)
	wrapper, wraps := p.(interface{ Unwrap() Policy })
	if !wraps || stateful && validates {
		return nil
	}
	inner := wrapper.Unwrap()
	if err := within("the policy that Unwrap returns", inner); err != nil || stateful {
		return err
	}
	if series := BeginSeries(inner, Start{}); series != nil {
		series.End()
		return kit.Invalid(field + " has no Begin and disables the memory of the policy inside; return Around from Begin")
	}
	return nil
}
