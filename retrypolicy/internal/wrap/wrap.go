// Package wrap has the common part of policies around other policies, outside package retrypolicy.
package wrap

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Around is a policy around Policy that changes nothing: it forwards every call. Policies with
// shared state embed it and define the methods in which they differ.
type Around struct{ Policy retrypolicy.Policy }

// Decide forwards to Policy.
func (w Around) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return w.Policy.Decide(a) }

// Admit forwards to Policy.
func (w Around) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Admit(w.Policy, a)
}

// Observe forwards to Policy.
func (w Around) Observe(a retrypolicy.Attempt) { retrypolicy.Observe(w.Policy, a) }

// Withdraw forwards to Policy.
func (w Around) Withdraw(a retrypolicy.Attempt) { retrypolicy.Withdraw(w.Policy, a) }

// Inside returns Policy.
func (w Around) Inside() retrypolicy.Policy { return w.Policy }

// Charges reports false: the policy does not use Decision.Cost.
func (Around) Charges() bool { return false }

// Check validates a wrapper that the method Wrap of a type returned. made reports whether the
// function constructor made the value.
func (w Around) Check(made bool, typeName, constructor string) error {
	if !made {
		return failure.Invalid(typeName + " is nil; make one with " + constructor)
	}
	if w.Policy == nil { // joins strings only here: Do validates its policy in each call
		return Within("the policy given to "+typeName+".Wrap", nil)
	}
	return retrypolicy.Validate(w.Policy)
}

// Begins reports whether d lets the attempt begin at once.
func Begins(d retrypolicy.Decision) bool { return d.Retry && d.Delay <= 0 }

// Admitted is the decision that lets an attempt begin.
var Admitted = retrypolicy.Decision{Retry: true}

// Stop returns a decision that stops, for reason.
func Stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// Refuse withdraws the retry d that p wanted and returns refusal, which replaces it.
func Refuse(p retrypolicy.Policy, a retrypolicy.Attempt, d, refusal retrypolicy.Decision) retrypolicy.Decision {
	a.Last = d
	retrypolicy.Withdraw(p, a)
	return refusal
}

// Within validates the inner policy of a wrapper; field is the name of the wrapper's field.
func Within(field string, p retrypolicy.Policy) error {
	if p == nil {
		return failure.Invalid(field + " is nil; give a policy, NoRetry{} for none")
	}
	return retrypolicy.Validate(p)
}

// Outcomes returns the number of outcomes that a represents.
func Outcomes(a retrypolicy.Attempt) int64 { return int64(max(a.Count, 1)) }

// SaysNothing reports whether the outcome a gives no information about the service:
//
//   - The caller abandoned the attempt, or the client was closed.
//   - The failure arose on this side: from the operation's own context, from Permanent, or from
//     invalid input.
//
// An answer with an HTTP status is always information about the service.
//
// A deadline that passed while the service was expected to answer is information too: it arrives as
// a retryable failure.
func SaysNothing(a retrypolicy.Attempt) bool {
	switch {
	case a.Err == nil:
		return false
	case a.Kind == transport.Closed || a.Kind == transport.Cancelled ||
		a.Err == failure.ErrAbandoned || //nolint:errorlint // never wrapped
		failure.Cancelled(a.Err):
		return true
	case !a.Terminal:
		return false
	case failure.EndedByContext(a.Err):
		return true
	}
	if _, answered := failure.Status(a.Err); answered {
		return false
	}
	return a.Kind == transport.Invalid || failure.IsPermanent(a.Err)
}
