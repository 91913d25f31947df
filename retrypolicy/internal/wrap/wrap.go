// Package wrap has helpers for policies around other policies, outside package retrypolicy.
package wrap

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

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
	case a.Kind == transport.Closed || a.Kind == transport.Cancelled || a.Err == failure.ErrAbandoned ||
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
