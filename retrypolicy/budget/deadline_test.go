package budget_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
)

// A retry after the deadline costs nothing and does not fail with OutOfQuota.
func TestAQuotaIsNotChargedForARetryAfterTheDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b, err := budget.NewTokenBucket(5, 0, 0)
		require.NoError(t, err)
		q, err := budget.NewQuota(&budget.QuotaOptions{Bucket: b})
		require.NoError(t, err)
		failing := func(context.Context) error { return errors.New("down") }

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = retrypolicy.Do(ctx, q.Wrap(retrypolicy.Fixed{Delay: time.Second}), failing)
		require.ErrorIs(t, err, retrypolicy.ReasonPastDeadline)
		require.Equal(t, 5, b.Tokens(time.Now()))

		r := retrypolicy.Retrier{Policy: q.Wrap(retrypolicy.Fixed{Delay: time.Second}), Timeout: time.Second}
		require.ErrorIs(t, r.Do(t.Context(), failing), retrypolicy.ReasonOutOfTime,
			"its own limit is no deadline of the caller's")
		require.Equal(t, 5, b.Tokens(time.Now()))

		require.ErrorIs(t, retrypolicy.Do(ctx, q.Wrap(retrypolicy.Fixed{Delay: time.Millisecond}), failing),
			retrypolicy.ReasonOutOfQuota,
			"one retry is paid for, the next is not")
	})
}
