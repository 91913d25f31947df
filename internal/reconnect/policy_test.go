package reconnect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

// A request that is cancelled during a delay refunds the retry to a shared quota.
func TestARetryThatIsNotMadeCostsNothing(t *testing.T) {
	bucket, err := budget.NewTokenBucket(500, 0, 0)
	require.NoError(t, err)
	quota, err := budget.NewQuota(&budget.QuotaOptions{Bucket: bucket})
	require.NoError(t, err)
	now := time.Now()
	s := retrypolicy.Begin(reconnect.RequestPolicy(quota.Wrap(retrypolicy.Fixed{Delay: time.Second})), "", now)
	_, err = s.Admit(now, 0)
	require.NoError(t, err)
	again := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Network}
	d, err := s.Failure(now, 0, again, transport.Network)
	require.NoError(t, err)
	require.True(t, d.Retry)
	require.Equal(t, 495, bucket.Tokens(now))
	s.End()
	require.Equal(t, 500, bucket.Tokens(now))
}

// A policy may return 0 by accident, as a shift that overflows does. Immediately means it.
func TestRequestsHaveTheLeastDelayOfConnections(t *testing.T) {
	delay := func(p retrypolicy.Policy, retry int) time.Duration {
		d := reconnect.RequestPolicy(p).Decide(retrypolicy.Attempt{Retry: retry, Kind: transport.Network})
		require.True(t, d.Retry)
		return d.Delay
	}
	zero := retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 0 })
	require.Zero(t, delay(zero, 1))
	require.Equal(t, reconnect.LeastDelay, delay(zero, 2))
	require.Zero(t, delay(retrypolicy.Immediately{}, 2))
	require.Equal(t, time.Second, delay(retrypolicy.Fixed{Delay: time.Second}, 2))
}
