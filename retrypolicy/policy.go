package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Attempt is the question: what failed, how often, since when.
type Attempt struct {
	// Retry is the number of the retry that is asked about: 1 for the first. For Observe and Admit it
	// is the number of the attempt that ended or is about to begin: 0 for the first attempt.
	Retry int
	// Count is how many outcomes of the same sort an Observe stands for; 0 counts as 1.
	Count int
	// Scope tells a reconnect (Connection) from sending a message again (Operation).
	Scope transport.Scope
	// Kind is the Kind of Err: the class of the failure.
	Kind transport.Kind
	// Terminal: the failure is one that no retry mends. Only Observe sees it; Decide is not asked
	// then.
	Terminal bool
	// Safe says whether the failure leaves it safe to repeat the operation.
	Safe Safe
	// Fault says whose fault the failure was.
	Fault Fault
	// After is the wait that the service asked for, 0 if it did not, negative if it asked not to be
	// tried again.
	After time.Duration
	// Elapsed is the time since this series began: since the connection was lost, since the message
	// was first refused, since the first attempt of Do.
	Elapsed time.Duration
	// Left is the time until the caller's own deadline, 0 if there is none. A retry that would begin
	// later is not made, so a policy that pays for retries need not.
	Left time.Duration
	// Now is the time of the question.
	Now time.Time
	// Key names what the operation works on (a host, a tenant, a device), for policies that keep one
	// state for each; see PerKey.
	Key string
	// Last is the decision that led to the attempt that failed now; zero at the first.
	Last Decision
	// Rand is a draw for this decision, uniform over all values: Rand / 2^64 is a fraction in [0, 1).
	Rand uint64
	// Err is the latest failure.
	Err error
}

// Decision is the answer. The zero Decision stops.
type Decision struct {
	// Retry: try again, after Delay. A Delay of 0 is a valid retry.
	Retry bool
	// Reason says why there is no retry.
	Reason Reason
	// Cost is what the retry took out of a quota, to be given back on success. It belongs to Quota.
	Cost uint16
	// Rule is which rule of ByKind Step belongs to: 1 for the first, 8 for Default, 0 for none. It
	// belongs to ByKind.
	Rule uint8
	// Queued: ConcurrencyBudget counts the retry until it begins or is withdrawn. It belongs to
	// ConcurrencyBudget.
	Queued bool
	// Counts is how often each rule of ByKind has applied in the series, at most 2^31-2 times. It
	// belongs to ByKind.
	Counts [maxRules]uint32
	// Delay is the wait before the retry. With Retry false it is the wait before a caller that polls
	// in a loop may call again, mostly 0.
	Delay time.Duration
	// Step is what a back-off wants to remember until the next question of the same series. 0:
	// nothing.
	Step uint64
}

// String gives the answer in words, such as "retry after 1.5s" or "stop: out of attempts".
func (d Decision) String() string {
	if d.Retry {
		return "retry after " + d.Delay.String()
	}
	return "stop: " + d.Reason.String()
}

// Policy decides. Decide may be called by any goroutine, by several clients at a time if they share
// the value. It is called once for each attempt that failed and may be repeated.
type Policy interface {
	Decide(a Attempt) Decision
}

// Observer is a Policy that learns from outcomes: a quota, a rate limiter, a breaker. Its caller
// reports every attempt that ended, once, and before it calls Decide about it. Err nil is a
// success.
type Observer interface {
	Observe(a Attempt)
}

// Gate is a Policy that decides before each attempt, the first included, whether it may begin. Its
// caller calls Admit before an attempt: Retry with no Delay lets it begin, Retry with a Delay says
// to wait that long and ask again, no Retry refuses. An attempt that began is reported to Observe
// when it ends.
type Gate interface {
	Admit(a Attempt) Decision
}

// Withdrawer is a Policy that counts the retries that it decides on: a quota, a budget. The caller
// of such a policy calls Withdraw when a retry is not made after all: the caller gave up during the
// delay, a gate refused the retry, or another policy is asked in its place. a.Last is the decision
// that is withdrawn. A retry that a gate admitted has begun: its end is reported to Observe, and it
// is not withdrawn.
type Withdrawer interface {
	Withdraw(a Attempt)
}

// Observe reports the end of an attempt to p, if p is an Observer. Wrappers use it to pass outcomes
// on.
func Observe(p Policy, a Attempt) {
	if o, ok := p.(Observer); ok {
		o.Observe(a)
	}
}

// Admit asks p whether an attempt may begin, if p is a Gate; otherwise it may. Wrappers use it to
// pass the question on.
func Admit(p Policy, a Attempt) Decision {
	if g, ok := p.(Gate); ok {
		return g.Admit(a)
	}
	return admitted
}

// Withdraw tells p, if p is a Withdrawer, that the retry a.Last is not made. A wrapper calls it to
// pass this on, and for a retry of the policy inside that the wrapper itself refuses.
func Withdraw(p Policy, a Attempt) {
	if w, ok := p.(Withdrawer); ok && a.Last.Retry {
		w.Withdraw(a)
	}
}

// refuse withdraws the retry d that p wanted, and returns the decision that replaces it.
func refuse(p Policy, a Attempt, d, refusal Decision) Decision {
	a.Last = d
	Withdraw(p, a)
	return refusal
}

var admitted = Decision{Retry: true}

// Func is the shape that the Azure SDKs give a policy, as a Policy: the number of the retry (1 for
// the first) and the latest error in, whether to retry and after what delay out.
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

// Immediately always retries without a delay. It says so by name: every other policy whose delays
// would all be 0 is refused by Validate, because that is mostly a field that was left out. Put a
// limit around it, such as MaxAttempts.
type Immediately struct{}

// Decide retries at once.
func (Immediately) Decide(Attempt) Decision { return Decision{Retry: true} }

// NoRetry never retries.
type NoRetry struct{}

// Decide stops.
func (NoRetry) Decide(Attempt) Decision { return Decision{} }
