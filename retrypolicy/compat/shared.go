package compat

import (
	"time"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// stop returns a decision that stops, for reason.
func stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// ofStatus judges a failure by the Kind of its HTTP status. Below 100 there was no answer.
func ofStatus(status int) retrypolicy.Info {
	if status < 100 {
		return retrypolicy.OfKind(transport.Network)
	}
	return retrypolicy.OfKind(statuscode.Of(min(status, 599), statuscode.Web).Kind)
}

// overloaded reports whether the failure was a 429 or 503. Without a status it compares the Kinds
// of these.
func overloaded(a retrypolicy.Attempt) bool {
	if s, ok := kit.Status(a.Err); ok {
		status := s.HTTPStatusCode()
		return status == 429 || status == 503
	}
	return a.Kind == transport.Throttled || a.Kind == transport.Unavailable
}

// attemptTime is when the latest attempt of a series began, on the scale of Attempt.Elapsed.
type attemptTime time.Duration

// since returns the time since the latest attempt began.
func (t *attemptTime) since(a retrypolicy.Attempt) time.Duration {
	if a.Retry <= 1 { // the caller counts anew
		*t = 0
	}
	elapsed := max(a.Elapsed, 0)
	return elapsed - min(time.Duration(*t), elapsed)
}

// next notes that the next attempt begins after d.
func (t *attemptTime) next(a retrypolicy.Attempt, d time.Duration) {
	elapsed := max(a.Elapsed, 0)
	*t = attemptTime(elapsed + min(d, kit.Longest-elapsed))
}
