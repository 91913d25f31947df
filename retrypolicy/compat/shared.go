package compat

import (
	"math"
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

// again returns a decision to retry after d.
func again(d time.Duration) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: d}
}

// stop returns a decision that stops, for reason.
func stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// Limited tells Do whether a policy limits the retries of every failure by itself, so that
// retrypolicy.DefaultTimeout does not.

func (Azcore) Limited() bool        { return true }
func (GRPC) Limited() bool          { return true }
func (RetryableHTTP) Limited() bool { return true }
func (c AzureCSharp) Limited() bool { return c.MaxRetries != 0 }
func (j AzureJava) Limited() bool   { return j.settings().Count < math.MaxInt32 }
func (f Failsafe) Limited() bool    { return f.Retries >= 0 }
func (f FetchRetry) Limited() bool  { return f.OnFunc == nil }
func (p Polly) Limited() bool       { return p.Retries < math.MaxInt32 }
func (c AzureC) Limited() bool {
	return c.Curve == AzureCNone || c.Limit > 0 && c.Curve != AzureCImmediate
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
