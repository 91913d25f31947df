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
	"github.com/hubline-iot/hubline/transport"
)

func TestABreakerCountsAFailureAfterTheEndOfTheContextButNotThatEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1})
		require.NoError(t, err)
		p := b.Wrap(retrypolicy.Fixed{Delay: time.Second})
		call := func(answer func(context.Context) error) {
			ctx, cancel := context.WithCancel(t.Context())
			require.Error(t, retrypolicy.Do(ctx, p, func(ctx context.Context) error {
				cancel()
				return answer(ctx)
			}))
		}
		call(func(ctx context.Context) error { return ctx.Err() })
		require.Equal(t, budget.BreakerClosed, b.Status(time.Now()).State)
		call(func(context.Context) error { return errors.New("down") })
		require.Equal(t, budget.BreakerOpen, b.Status(time.Now()).State)
	})
}

func TestABreakerOfAllKindsDoesNotCountErrorsMarkedPermanent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Kinds: ^retrypolicy.KindSet(0)})
		require.NoError(t, err)
		p := b.Wrap(retrypolicy.NoRetry{})
		fail := func(failure error) {
			require.Error(t, retrypolicy.Do(t.Context(), p, func(context.Context) error { return failure }))
		}
		fail(retrypolicy.Permanent(transport.NotFound))
		require.Equal(t, budget.BreakerClosed, b.Status(time.Now()).State)
		fail(transport.NotFound)
		require.Equal(t, budget.BreakerOpen, b.Status(time.Now()).State)
	})
}

func TestARefusalBesideAProbeCarriesAnEighthOfTheCooldownAndALostProbeStillCounts(t *testing.T) {
	b, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: 8 * time.Second})
	require.NoError(t, err)
	begin := func() retrypolicy.Series {
		return retrypolicy.Inner(b.Wrap(retrypolicy.NoRetry{}), retrypolicy.Start{})
	}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	failing := retrypolicy.Attempt{Now: now, Kind: transport.Network, Err: transport.Network}
	first := begin()
	first.Admit(retrypolicy.Attempt{Now: now})
	first.Report(retrypolicy.VerdictAgain, failing)

	now = now.Add(8 * time.Second)
	lost, second := begin(), begin()
	require.True(t, lost.Admit(retrypolicy.Attempt{Now: now}).Retry)
	require.Equal(t, retrypolicy.Decision{Reason: retrypolicy.ReasonRejected, Delay: time.Second},
		second.Admit(retrypolicy.Attempt{Now: now}))

	now = now.Add(8 * time.Second)
	require.True(t, second.Admit(retrypolicy.Attempt{Now: now}).Retry, "the first probe is lost")
	lost.Report(retrypolicy.VerdictSucceed, retrypolicy.Attempt{Now: now})
	require.Equal(t, budget.BreakerClosed, b.Status(now).State, "its late outcome counts")
}
