package reconnect

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// RequestEnded returns the error of a request that failed for good with err, an error of a
// retrypolicy.Retrier under ctx:
//
//   - the failure itself, if it is not to be retried;
//   - Cancelled, if ctx ended or would have ended before another attempt; closed as its cause makes
//     that Closed;
//   - RetryExpired, if the policy ended the retries; err is in its chain.
func RequestEnded(ctx context.Context, err, closed error) *transport.Error {
	e := &transport.Error{Kind: transport.RetryExpired, Op: transport.OpSend, Err: err}
	why, _ := err.(*retrypolicy.Error)
	if why == nil { // an invalid policy
		e.Kind = transport.KindOf(err)
		return e
	}
	switch why.Reason {
	case retrypolicy.ReasonCancelled:
		return RequestCancelled(ctx, why.Err, closed)
	case retrypolicy.ReasonPastDeadline:
		e.Kind, e.Err = transport.Cancelled, operr.With(context.DeadlineExceeded, err)
	case retrypolicy.ReasonNotRetryable, retrypolicy.ReasonUnsafe:
		if inner := transport.Find(why.Err); inner != nil {
			e.Kind, e.Scope, e.Op, e.RetryAfter, e.Err = inner.Kind, inner.Scope, inner.Op, inner.RetryAfter, why.Err
			if own, _ := why.Err.(*transport.Error); own == inner {
				e.Err = inner.Err
			}
		}
	default: // the policy ended the retries
	}
	return e
}

// RequestCancelled returns the error of a request that ctx ended. failure is its last failure,
// which may be nil. The Kind is Closed if closed is the cause of the end.
func RequestCancelled(ctx context.Context, failure, closed error) *transport.Error {
	if failure == ctx.Err() { //nolint:errorlint // a failure that wraps it says more
		failure = nil
	}
	e := operr.Cancelled(ctx, transport.OpSend, transport.ScopeOperation, failure)
	if errors.Is(lifetime.Cause(ctx), closed) {
		e.Kind = transport.Closed
	}
	return e
}
