package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Attempt is the input of a Policy: the failure, the number of the retry, and the times.
type Attempt struct {
	// Retry is the number of the retry to decide on: 1 for the first. For Observe and Admit it is the
	// number of the attempt that ended or is about to begin: 0 for the first attempt.
	Retry int
	// Count is the number of equal outcomes that one Observe reports; 0 counts as 1.
	Count int
	// Scope distinguishes a reconnect (Connection) from sending a message again (Operation).
	Scope transport.Scope
	// Kind is the Kind of Err: the class of the failure.
	Kind transport.Kind
	// Terminal marks a failure that is not retried. Only Observe sees it; Decide is not called then.
	Terminal bool
	// Safe says whether the operation may be repeated after the failure. The device client leaves it
	// unknown.
	Safe classify.Safe
	// After is the wait that the service asked for. 0: none. Negative: the service asked not to retry.
	After time.Duration
	// Elapsed is the time since the series began: since the connection was lost, since the first
	// refusal of the message, or since the first attempt of Do.
	Elapsed time.Duration
	// Left is the time until the caller's own deadline, 0 if there is none. The caller skips a retry
	// that would begin later, so a policy need not charge for it.
	Left time.Duration
	// Now is the time of the call.
	Now time.Time
	// Key names the target of the operation (a host, a tenant, a device), for budget.PerKey.
	Key string
	// Last is the decision that led to the attempt that just failed; zero at the first.
	Last Decision
	// Rand is a draw for this decision, uniform over all values: Rand / 2^64 is a fraction in [0, 1).
	Rand uint64
	// Err is the latest failure.
	Err error
}

// Decision is the output of a Policy. The zero Decision stops.
type Decision struct {
	// Retry: try again, after Delay. From the second retry on the caller waits for a time of its own
	// if Delay is less, unless the decision is Immediately's; see the function Decide.
	Retry bool
	// Reason says why there is no retry.
	Reason Reason
	// Cost is the number of tokens that the retry took from a budget.Quota, which sets it; a success
	// gives them back.
	Cost uint16
	// Rule is the rule of ByKind whose policy set Step: 1 for the first, 8 for Default, 0 for none.
	// Set by ByKind.
	Rule uint8
	// Queued: a budget.ConcurrencyBudget, which sets it, counts the retry until it begins or is
	// withdrawn.
	Queued bool
	// immediate: Immediately made the decision, so a Delay of 0 is meant.
	immediate bool
	// Counts is how often each rule of ByKind has applied in the series, at most 2^31-2 times. Set by
	// ByKind.
	Counts [maxRules]uint32
	// Delay is the wait before the retry. With Retry false it is the wait before a polling caller may
	// call again, usually 0.
	Delay time.Duration
	// Step is the state of a back-off between two calls of the same series, such as the previous
	// delay. 0: none.
	Step uint64
}

// String describes the decision, such as "retry after 1.5s" or "stop: out of attempts".
func (d Decision) String() string {
	if d.Retry {
		return "retry after " + d.Delay.String()
	}
	return "stop: " + d.Reason.String()
}

// Policy decides about retries. Decide must be safe for concurrent use if several clients share the
// value. The caller calls it once for each attempt that failed and may be repeated.
type Policy interface {
	Decide(a Attempt) Decision
}

// Observer is a Policy that learns from outcomes: a quota, a rate limiter, a breaker. The caller
// reports every ended attempt once, before it calls Decide about it. A nil Err is a success.
type Observer interface {
	Observe(a Attempt)
}

// Gate is a Policy that admits attempts, the first included. The caller calls Admit before each
// attempt. Retry without a Delay admits it. Retry with a Delay asks the caller to wait that long
// and to call Admit again. Retry false refuses it. The caller reports an admitted attempt to
// Observe when it ends.
type Gate interface {
	Admit(a Attempt) Decision
}

// Withdrawer is a Policy that counts the retries that it decides on: a quota, a budget. The caller
// calls Withdraw for a retry that is not made after all, because the caller gave up during the
// delay, a gate refused the retry, or another policy takes over. a.Last is the withdrawn decision.
// A retry that a gate admitted has begun: it is reported to Observe and not withdrawn.
type Withdrawer interface {
	Withdraw(a Attempt)
}

// Decide asks p, and checks its answer for a caller that must not spin. From the second retry on
// the delay is at least least, unless Immediately decided: a policy may return 0 by accident, as a
// shift that overflows does. A negative delay is an error of the policy, and stops with
// NegativeDelay.
func Decide(p Policy, a Attempt, least time.Duration) Decision {
	d := p.Decide(a)
	switch {
	case d.Retry && d.Delay < 0:
		return refuse(p, a, d, stop(ReasonNegativeDelay))
	case d.Retry && a.Retry > 1 && !d.immediate:
		d.Delay = max(d.Delay, least)
	}
	return d
}

// Observe reports the end of an attempt to p, if p is an Observer. Wrappers use it to forward
// outcomes.
func Observe(p Policy, a Attempt) {
	if o, ok := p.(Observer); ok {
		o.Observe(a)
	}
}

// Admit asks p whether an attempt may begin, if p is a Gate; otherwise it admits the attempt.
// Wrappers use it to forward the call.
func Admit(p Policy, a Attempt) Decision {
	if g, ok := p.(Gate); ok {
		return g.Admit(a)
	}
	return admitted
}

// Withdraw informs p, if p is a Withdrawer, that the retry a.Last is not made. A wrapper calls it
// to forward a Withdraw, and to refuse a retry that the inner policy wanted.
func Withdraw(p Policy, a Attempt) {
	if w, ok := p.(Withdrawer); ok && a.Last.Retry {
		w.Withdraw(a)
	}
}

// refuse withdraws the retry d that p wanted and returns refusal, which replaces it.
func refuse(p Policy, a Attempt, d, refusal Decision) Decision {
	a.Last = d
	Withdraw(p, a)
	return refusal
}

var admitted = Decision{Retry: true}

// Func is a Policy in the shape that the Azure SDKs use. It takes the number of the retry (1 for
// the first) and the latest error, and returns whether to retry and after what delay.
type Func func(retry int, last error) (again bool, delay time.Duration)

// Decide calls f.
func (f Func) Decide(a Attempt) Decision {
	again, delay := f(a.Retry, a.Err)
	return Decision{Retry: again, Delay: delay}
}

// Validate refuses a nil f.
func (f Func) Validate() error {
	if f == nil {
		return failure.Invalid("Func is nil; give a function, or use NoRetry{}")
	}
	return nil
}

// Immediately always retries without a delay: a caller's least delay does not apply. Validate
// refuses every other policy whose delays would all be 0, because that usually means a forgotten
// field. Put a limit around it, such as MaxAttempts.
type Immediately struct{}

// Decide retries at once.
func (Immediately) Decide(Attempt) Decision { return Decision{Retry: true, immediate: true} }

// NoRetry never retries.
type NoRetry struct{}

// Decide stops.
func (NoRetry) Decide(Attempt) Decision { return Decision{} }
