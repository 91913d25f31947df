package device_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A quota is charged for retries that are made. charges returns the tokens missing from a quota of
// 500, of which a retry costs 14.
type charges struct {
	quota  *budget.Quota
	bucket *budget.TokenBucket
}

func newCharges(t *testing.T) charges {
	t.Helper()
	b, err := budget.NewTokenBucket(500, 0, 0)
	require.NoError(t, err)
	q, err := budget.NewQuota(&budget.QuotaOptions{Bucket: b, Retry: 14})
	require.NoError(t, err)
	return charges{q, b}
}

func (c charges) wrap(delay time.Duration) retrypolicy.Policy {
	return c.quota.Wrap(retrypolicy.Fixed{Delay: delay})
}

func (c charges) missing() int { return 500 - c.bucket.Tokens(time.Now()) }

func TestARetryUnderAPolicyWithoutQuotaCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := newCharges(t)
		c := started(t, &fake{dial: failing(lost(transport.Network))}, &device.Options{RetryPolicy: q.wrap(time.Hour)})
		synctest.Wait()
		require.NoError(t, c.SetRetryPolicy(retrypolicy.Fixed{Delay: time.Hour}))
		synctest.Wait()
		require.Zero(t, q.missing())
		require.NoError(t, c.SetRetryPolicy(q.wrap(time.Second)))
		time.Sleep(time.Hour)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Zero(t, q.missing(), "a success gives the cost back")
	})
}

// Whatever waits for a retry is charged once, also under further policies, and gets the charge back
// when it gives up.
func TestARetryIsChargedOnceAndCostsNothingIfItIsNotMade(t *testing.T) {
	held := newWitness(retrypolicy.Fixed{Delay: time.Second})
	held.admit = func(a retrypolicy.Attempt) retrypolicy.Decision {
		if a.Retry == 0 {
			return retrypolicy.Decision{Retry: true}
		}
		return retrypolicy.Decision{Retry: true, Delay: time.Hour}
	}
	refusing := &fake{verdict: refuse(transport.Unavailable), request: refusing(transport.Unavailable)}
	for name, row := range map[string]struct {
		f     *fake
		inner retrypolicy.Policy                   // nil: an hour
		begin func(t *testing.T, c *device.Client) // nil: an attempt
	}{
		"an attempt":                {f: &fake{dial: down}},
		"an attempt held by a gate": {f: &fake{dial: down}, inner: held},
		"a message":                 {f: refusing, begin: func(t *testing.T, c *device.Client) { enqueue(t, c, 1, 1) }},
		"a twin call": {f: refusing, begin: func(_ *testing.T, c *device.Client) {
			go func() { _, _ = c.GetTwin(context.Background()) }()
		}},
	} {
		run(t, name, func(t *testing.T) {
			q := newCharges(t)
			o := &device.Options{RetryPolicy: q.wrap(time.Hour)}
			if row.inner != nil {
				o.RetryPolicy = q.quota.Wrap(row.inner)
			}
			c := started(t, row.f, o)
			if row.begin != nil {
				row.begin(t, c)
			}
			time.Sleep(10 * time.Second)
			require.Equal(t, 14, q.missing())
			for i := range 5 {
				if row.inner == nil {
					require.NoError(t, c.SetRetryPolicy(q.wrap(time.Duration(i+2)*time.Hour)))
				}
				synctest.Wait()
				require.Equal(t, 14, q.missing())
			}
			require.NoError(t, c.Close())
			require.Zero(t, q.missing(), "after it")
		})
	}
}

func TestARetryThatIsRefusedAfterItWasPaidCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) { // by OutageLimit
		q := newCharges(t)
		c, _ := client(t, &fake{dial: down}, &device.Options{RetryPolicy: q.wrap(time.Hour), OutageLimit: time.Minute,
			TryAgainAfter: time.Hour})
		require.NoError(t, c.Start())
		synctest.Wait()
		require.Zero(t, q.missing())
	})
	bubble(t, func(t *testing.T) { // by a gate
		q := newCharges(t)
		gate := newWitness(retrypolicy.Fixed{Delay: time.Second})
		gate.admit = func(a retrypolicy.Attempt) retrypolicy.Decision { return retrypolicy.Decision{Retry: a.Retry == 0} }
		started(t, &fake{dial: down}, &device.Options{RetryPolicy: q.quota.Wrap(gate), TryAgainAfter: time.Hour})
		time.Sleep(time.Minute)
		require.Zero(t, q.missing())
	})
	bubble(t, func(t *testing.T) { // a message, by a gate
		q := newCharges(t)
		gate := newWitness(retrypolicy.Fixed{Delay: time.Second})
		gate.admit = func(a retrypolicy.Attempt) retrypolicy.Decision { return retrypolicy.Decision{Retry: a.Retry == 0} }
		f := &fake{verdict: refuse(transport.Unavailable)}
		c := opened(t, f, &device.Options{MessagePolicy: q.quota.Wrap(gate)})
		require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.RetryExpired)
		require.Zero(t, q.missing())
	})
}

// A caller that gives up during a pause withdraws its message, and the charge for the retry is
// given back.
func TestAMessageThatIsWithdrawnDuringAPauseCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		q := newCharges(t)
		f := &fake{verdict: refuse(transport.Unavailable)}
		c := opened(t, f, &device.Options{MessagePolicy: q.wrap(time.Minute)})
		ctx := within(t, time.Second)
		require.ErrorIs(t, c.Send(ctx, msg(1)), context.DeadlineExceeded)
		time.Sleep(time.Hour)
		require.Zero(t, q.missing())
	})
}

func TestThePoliciesForConnectionsAndMessagesAreSetApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var takes atomic.Bool
		f := &fake{verdict: func(int, transport.Item) error {
			if takes.Load() {
				return nil
			}
			return refused(transport.Unavailable)
		}}
		c := opened(t, f, &device.Options{MessagePolicy: retrypolicy.NoRetry{}})

		// SetRetryPolicy keeps the policy for messages.
		require.NoError(t, c.SetRetryPolicy(constant(time.Minute)))
		require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.RetryExpired)

		// nil makes messages follow the policy for connections.
		require.NoError(t, c.SetMessagePolicy(nil))
		began := time.Now()
		time.AfterFunc(time.Second, func() { takes.Store(true) })
		require.NoError(t, c.Send(t.Context(), msg(2)))
		require.Equal(t, time.Minute, time.Since(began))

		// SetMessagePolicy keeps the policy for connections.
		require.NoError(t, c.SetMessagePolicy(retrypolicy.NoRetry{}))
		dials := len(f.dialTimes())
		f.lose(transport.Network, 2*time.Minute)
		require.Len(t, f.dialTimes(), dials+1)
		require.Equal(t, device.StateConnected, c.Status().State)
		takes.Store(false)
		require.ErrorIs(t, c.Send(t.Context(), msg(3)), transport.RetryExpired)
		require.ErrorIs(t, c.SetMessagePolicy(retrypolicy.Fixed{Delay: -1}), transport.Invalid)
	})
}

// A budget in PacedPolicy limits the retries that PacedPolicy grants, also beside a policy without
// memory.
func TestABudgetInPacedPolicyLimitsRetries(t *testing.T) {
	type wrap = func(retrypolicy.Policy) retrypolicy.Policy
	curve := retrypolicy.Fixed{Delay: time.Second}
	for name, budgeted := range map[string]func(t *testing.T) wrap{
		"retry budget": func(t *testing.T) wrap {
			b, err := budget.NewRetryBudget(&budget.RetryBudgetOptions{Share: 1e-6, MinRetries: 2})
			require.NoError(t, err)
			return b.Wrap
		},
		"late quota": func(t *testing.T) wrap {
			bucket, err := budget.NewTokenBucket(10, 0, 0)
			require.NoError(t, err)
			q, err := budget.NewQuota(&budget.QuotaOptions{Bucket: bucket, Retry: 4, Late: true})
			require.NoError(t, err)
			return q.Wrap
		},
		"breaker": func(t *testing.T) wrap {
			b, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 2})
			require.NoError(t, err)
			return b.Wrap
		},
	} {
		for other, policy := range map[string]retrypolicy.Policy{
			"plain": curve, "limiter": budget.NewAdaptive().Wrap(curve),
		} {
			run(t, name+" beside a "+other, func(t *testing.T) {
				f := &fake{dial: func(int, context.Context) error { return lost(transport.Throttled) }}
				c, _ := client(t, f, &device.Options{RetryPolicy: policy, PacedPolicy: budgeted(t)(curve)})
				require.ErrorIs(t, c.Open(t.Context()), transport.RetryExpired)
				require.Len(t, f.dialTimes(), 3)
			})
		}
	}
}
