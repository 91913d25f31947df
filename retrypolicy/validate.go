package retrypolicy

import (
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// Validator is a Policy whose parameters can be invalid. Code that accepts a policy calls the
// function Validate first.
type Validator interface {
	// Validate reports the first invalid parameter, as a *transport.Error of Kind Invalid that names
	// it.
	Validate() error
}

// Validate checks p and all policies inside it. It allows at most one Quota, and no Breaker,
// Throttle, limiter or budget twice. A nil p is an error.
func Validate(p Policy) error {
	if p == nil {
		return failure.Invalid("policy is nil; give one, NoRetry{} for none")
	}
	if v, ok := p.(Validator); ok {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	if inside(p, 0) != nil {
		return misplaced(p)
	}
	return nil
}

// within validates the inner policy of a wrapper; field is the name of the wrapper's field.
func within(field string, p Policy) error {
	if p == nil {
		return failure.Invalid(field + " is nil; give a policy, NoRetry{} for none")
	}
	return Validate(p)
}
