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
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
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

func TestABudgetIsNotChargedForARetryAfterTheDeadline(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{MinRetries: 10}))
		failing := func(context.Context) error { return errors.New("down") }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := retrypolicy.Do(ctx, b.Wrap(retrypolicy.Fixed{Delay: time.Second}), failing)
		require.ErrorIs(t, err, retrypolicy.ReasonPastDeadline)
		requests, retries := b.Counts(time.Now())
		require.Equal(t, []int{1, 0}, []int{requests, retries})

		err = retrypolicy.Do(ctx, b.Wrap(retrypolicy.Fixed{Delay: 400 * time.Millisecond}), failing)
		require.ErrorIs(t, err, retrypolicy.ReasonPastDeadline)
		requests, retries = b.Counts(time.Now())
		require.Equal(t, []int{2, 2}, []int{requests, retries}, "two are made and counted, the third is neither")
	})
}

// Permanent overrides every classifier.
func TestPermanentIsAboveEveryClassifier(t *testing.T) {
	r := retrypolicy.Retrier{
		Policy:   retrypolicy.Immediately{},
		Classify: func(error) retrypolicy.Info { return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain} },
	}
	runs := 0
	err := r.Do(t.Context(), func(context.Context) error {
		runs++
		return retrypolicy.Permanent(errors.New("hopeless"))
	})
	require.ErrorIs(t, err, retrypolicy.ReasonNotRetryable)
	require.Equal(t, 1, runs)
}

// outcomes records the reported errors.
type outcomes struct {
	retrypolicy.Policy
	errs []error
	ends int
}

func (o *outcomes) Begin(retrypolicy.Start) retrypolicy.Series { return outcomesSeries{outcomes: o} }

type outcomesSeries struct {
	retrypolicy.Free
	*outcomes
}

func (o outcomesSeries) Report(_ retrypolicy.Verdict, a retrypolicy.Attempt) {
	o.errs = append(o.errs, a.Err)
}
func (o outcomesSeries) End() { o.ends++ }

// A cancelled attempt has no outcome; the failure before it is kept.
func TestACancelledTryHasNoOutcome(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &outcomes{Policy: retrypolicy.Immediately{}}
	down := errors.New("down")
	err := retrypolicy.Do(ctx, p, func(ctx context.Context) error {
		if len(p.errs) == 0 {
			return down
		}
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, retrypolicy.ReasonCancelled)
	require.ErrorIs(t, err, down)
	require.Equal(t, []error{down}, p.errs)
	require.Equal(t, 1, p.ends)
}
