package retrypolicy

import (
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
)

// Validator is a Policy with parameters that can make no sense. Code that is given a policy calls
// the function Validate first.
type Validator interface {
	// Validate reports the first parameter that makes no sense, as a *transport.Error of Kind Invalid
	// that names it.
	Validate() error
}

// Validate checks p if it can be checked, and what p holds inside: one Quota at most, and no
// Breaker, Throttle, limiter or budget twice. A nil p is an error.
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

// within validates the policy that a wrapper's field holds.
func within(field string, p Policy) error {
	if p == nil {
		return failure.Invalid(field + " is nil; give a policy, NoRetry{} for none")
	}
	return Validate(p)
}
