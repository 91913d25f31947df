// Package wrap has what policies around other policies share outside package retrypolicy.
package wrap

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Admitted is the decision that lets an attempt begin.
var Admitted = retrypolicy.Decision{Retry: true}

// Stop returns the decision against a retry, for reason.
func Stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// Refuse withdraws the retry d that p wanted, and returns the decision that replaces it.
func Refuse(p retrypolicy.Policy, a retrypolicy.Attempt, d, refusal retrypolicy.Decision) retrypolicy.Decision {
	a.Last = d
	retrypolicy.Withdraw(p, a)
	return refusal
}

// Within validates the policy that a wrapper's field holds.
func Within(field string, p retrypolicy.Policy) error {
	if p == nil {
		return failure.Invalid(field + " is nil; give a policy, NoRetry{} for none")
	}
	return retrypolicy.Validate(p)
}

// Outcomes returns how many outcomes a stands for.
func Outcomes(a retrypolicy.Attempt) int64 { return int64(max(a.Count, 1)) }

// SaysNothing reports whether the outcome a says nothing of the service, neither that it works nor
// that it does not: the caller gave the attempt up, the client was closed, or the failure was
// settled on this side: by the operation's own context, by Permanent, by input that is wrong. An
// answer with an HTTP status is one of the service whatever it was made into.
//
// A deadline that passed while the service was to answer is not among these: it comes as what may
// be tried again.
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
