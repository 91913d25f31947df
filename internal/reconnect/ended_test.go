package reconnect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

var errClosed = errors.New("Close was called")

func TestTheErrorOfASeriesThatEnded(t *testing.T) {
	refused := &transport.Error{Kind: transport.NotFound, Op: transport.OpDial, RetryAfter: 3, Err: errors.New("gone")}
	busy := &transport.Error{Kind: transport.Unavailable, Err: errors.New("busy")}
	once := retrypolicy.MaxAttempts{Total: 2, Policy: retrypolicy.Immediately{}}
	slow := retrypolicy.Fixed{Delay: time.Hour}
	for name, c := range map[string]struct {
		policy  retrypolicy.Policy
		failure error
		ends    func(context.Context) (context.Context, context.CancelFunc)
		kind    transport.Kind
		is      []error
		text    string
	}{
		"not to be retried": {once, refused, nil, transport.NotFound, nil, "dial: not found: gone"},
		"wrapped":           {once, retrypolicy.Permanent(busy), nil, transport.Unavailable, []error{busy}, ""},
		"by the policy":     {once, busy, nil, transport.RetryExpired, []error{busy, retrypolicy.ReasonOutOfAttempts}, ""},
		"an invalid policy": {retrypolicy.MaxAttempts{}, busy, nil, transport.Invalid, nil, ""},
		"closed": {slow, busy, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errClosed) })
			return ctx, func() { cancel(nil) }
		}, transport.Closed, []error{errClosed, busy, context.Canceled}, ""},
		"cancelled": {slow, busy, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, transport.Cancelled, []error{busy, context.Canceled}, ""},
		"before its deadline": {slow, busy, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, transport.Cancelled, []error{busy, context.DeadlineExceeded, retrypolicy.ReasonPastDeadline}, ""},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			ctx := t.Context()
			if c.ends != nil {
				own, cancel := c.ends(ctx)
				defer cancel()
				ctx = own
			}
			r := retrypolicy.Retrier{Policy: c.policy, Timeout: -1}
			e := reconnect.RequestEnded(ctx, r.Do(ctx, func(context.Context) error { return c.failure }), errClosed)
			require.Equal(t, c.kind, e.Kind)
			require.False(t, errfilter.Retryable(e) && c.kind != transport.Unavailable)
			for _, is := range c.is {
				require.ErrorIs(t, e, is)
			}
			if c.text != "" {
				require.EqualError(t, e, c.text)
				require.Equal(t, refused.RetryAfter, e.RetryAfter)
			}
		})
	}
}
