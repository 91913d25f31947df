// Package retrypolicy decides whether to try again, and after what delay.
//
// A Policy computes; it never sleeps, never sees an error that package errfilter calls terminal, and allocates nothing. The waiting is
// done by the caller. Random numbers come in with the question (Attempt.Rand), so a policy without state of its own is a plain value that
// any number of clients can share, and a test can ask for the exact answer.
package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Attempt is the question: what failed, how often, since when.
type Attempt struct {
	// Retry is the number of the retry that is asked about: 1 for the first.
	Retry int
	// Scope tells a reconnect (Connection) from sending a message again (Operation).
	Scope transport.Scope
	// Kind is the Kind of Err.
	Kind transport.Kind
	// After is the wait that the service asked for, 0 if it did not. The caller waits at least that long whatever the answer is.
	After time.Duration
	// Elapsed is the time since the first failure of this series: since the connection was lost, since the message was first refused.
	Elapsed time.Duration
	// Last is the decision that led to the try that failed now; zero at the first.
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
	// Delay is the wait before the retry.
	Delay time.Duration
	// Cost is what the retry took out of a quota, to be given back on success.
	Cost uint16
}

// Policy decides. Decide may be called by any goroutine, by several clients at a time if they share the value.
type Policy interface {
	Decide(a Attempt) Decision
}

// Func is the shape that the Azure SDKs give a policy, as a Policy: the number of the retry (1 for the first) and the latest error in,
// whether to retry and after what delay out.
type Func func(retry int, last error) (again bool, delay time.Duration)

// Decide calls f.
func (f Func) Decide(a Attempt) Decision {
	again, delay := f(a.Retry, a.Err)
	return Decision{Retry: again, Delay: delay}
}

// Validate refuses a nil f.
func (f Func) Validate() error {
	if f == nil {
		return invalid("Func is nil; give a function, or use NoRetry{}")
	}
	return nil
}

// NoRetry never retries.
type NoRetry struct{}

// Decide stops.
func (NoRetry) Decide(Attempt) Decision { return Decision{} }

// Validator is what a Policy implements whose parameters can make no sense. Whoever takes a policy calls Validate first.
type Validator interface {
	// Validate reports the first parameter that makes no sense, as a *transport.Error of Kind Invalid that names it.
	Validate() error
}

// Validate checks p if it can be checked. A nil p is an error.
func Validate(p Policy) error {
	if p == nil {
		return invalid("policy is nil; give one, NoRetry{} for none")
	}
	if v, ok := p.(Validator); ok {
		return v.Validate()
	}
	return nil
}
