package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// An error of Do is not retryable when the caller's context ended it, whatever the last failure
// was; neither errfilter nor an outer Do repeats it.
func TestTheErrorOfADoWhoseContextEndedIsNotRetryable(t *testing.T) {
	shutdown := errors.New("shutting down")
	for name, failure := range map[string]error{
		"kind":  &transport.Error{Kind: transport.Network, Err: errors.New("reset")},
		"plain": errors.New("reset"),
	} {
		for _, end := range []string{"cancelled", "past the deadline"} {
			t.Run(name+", "+end, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					outer, runs := retrypolicy.Retrier{Policy: retrypolicy.ExponentialBackoffWithJitter{}}, 0
					err := outer.Do(t.Context(), func(ctx context.Context) error {
						runs++
						ctx, cancel := context.WithCancelCause(ctx)
						defer cancel(nil)
						if end == "cancelled" {
							time.AfterFunc(time.Second, func() { cancel(shutdown) })
						} else {
							var stop context.CancelFunc
							ctx, stop = context.WithTimeout(ctx, time.Second)
							defer stop()
						}
						err := retrypolicy.Do(ctx, retrypolicy.Fixed{Delay: 700 * time.Millisecond},
							func(context.Context) error { return failure })
						if !errors.Is(err, transport.Cancelled) || errfilter.Retryable(err) {
							t.Errorf("%v: Cancelled %v, rule %+v", err, errors.Is(err, transport.Cancelled), errfilter.Of(err))
						}
						if end == "cancelled" != errors.Is(err, shutdown) {
							t.Errorf("%v: the cause is %v", err, context.Cause(ctx))
						}
						return fmt.Errorf("nested: %w", err)
					})
					if runs != 1 || !errors.Is(err, retrypolicy.ReasonNotRetryable) {
						t.Errorf("%d runs, %v", runs, err)
					}
				})
			})
		}
	}
}

// A series that its own limits end is as retryable as its last failure.
func TestTheErrorOfADoThatEndedByItselfIsAsRetryableAsItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := retrypolicy.Retrier{Policy: retrypolicy.ExponentialBackoffWithJitter{}, Timeout: time.Second}
		err := r.Do(t.Context(), func(context.Context) error { return transport.Network })
		if errors.Is(err, transport.Cancelled) || !errfilter.Retryable(err) {
			t.Errorf("%v: %+v", err, errfilter.Of(err))
		}
	})
}

// AttemptTimeout bounds one attempt, so a nested Do that stops ahead of it may be repeated.
func TestANestedDoThatAttemptTimeoutEndsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Policy: retrypolicy.Immediately{}, Total: 3},
			AttemptTimeout: time.Second}
		err := r.Do(t.Context(), func(ctx context.Context) error {
			runs++
			return retrypolicy.Do(ctx, retrypolicy.Fixed{Delay: time.Minute},
				func(context.Context) error { return transport.Network })
		})
		if runs != 3 || !errors.Is(err, retrypolicy.ReasonOutOfAttempts) {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}
