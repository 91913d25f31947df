package retrypolicy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

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
