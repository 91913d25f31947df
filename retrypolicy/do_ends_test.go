package retrypolicy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat/azure"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// reasonToStop is the cause of a context's end; errors.As finds it by its type.
type reasonToStop struct{ text string }

func (r *reasonToStop) Error() string { return r.text }

func TestTheCauseOfACancelledContextIsReachable(t *testing.T) {
	why := &reasonToStop{"shutdown requested"}
	for name, op := range map[string]func(ctx context.Context) error{
		"during the delay": func(context.Context) error { return transport.Network },
		"during a try":     func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(1500*time.Millisecond, func() { cancel(why) })
			err := retrypolicy.Do(ctx, retrypolicy.Fixed{Delay: time.Second}, op)
			var found *reasonToStop
			if !errors.Is(err, why) || !errors.As(err, &found) || found != why {
				t.Errorf("%s: %v does not lead to the cause", name, err)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, retrypolicy.Cancelled) ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v is not a context.Canceled", name, err)
			}
		})
	}
}

// azcore waits for the deadline and returns its error. Do returns at once, and errors.Is matches
// the same error.
func TestAnEndBeforeADeadlineIsDeadlineExceeded(t *testing.T) {
	for name, run := range map[string]func(ctx context.Context) error{
		"the context's": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return retrypolicy.Do(ctx, retrypolicy.Fixed{Delay: time.Minute},
				func(context.Context) error { return transport.Network })
		},
		"the context's, seen by a quota": func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return retrypolicy.Do(ctx, policytest.NewQuota(t, nil).Wrap(retrypolicy.Fixed{Delay: time.Minute}),
				func(context.Context) error { return transport.Network })
		},
		"Limit": func(ctx context.Context) error {
			r := retrypolicy.Retrier{Policy: retrypolicy.Fixed{Delay: time.Minute}, Limit: 2 * time.Second}
			return r.Do(ctx, func(context.Context) error { return transport.Network })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			if err := run(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, transport.Network) ||
				errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		p := retrypolicy.MaxElapsed{Limit: time.Second, LookAhead: true,
			Policy: retrypolicy.Fixed{Delay: time.Minute}}
		if err := retrypolicy.Do(t.Context(),
			p, func(context.Context) error { return transport.Network }); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a limit of the policy is no deadline of a context: %v", err)
		}
	})
}

func TestAnEndlessCurveHasALimitWithoutADeadline(t *testing.T) {
	curve := retrypolicy.Backoff{Base: time.Second, Max: 10 * time.Second}
	quota := policytest.NewQuota(t, &budget.QuotaOptions{Size: 100000})
	kinds := retrypolicy.Kinds(transport.Throttled)
	for _, c := range []struct {
		name    string
		policy  retrypolicy.Policy
		limit   time.Duration
		bounded bool
	}{
		{"a curve", curve, 0, true},
		{"a pointer to one", &curve, 0, true},
		{"inside a quota", quota.Wrap(retrypolicy.RetryAfter{Policy: curve}), 0, true},
		{"in one of the rules", retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: kinds, Policy: retrypolicy.NoRetry{}}},
			Default: curve}, 0, true},
		{"a device's", azure.Java{}, 0, true},
		{"by name", curve, -1, false},
		{"a limit of its own", retrypolicy.MaxAttempts{Total: 100, Policy: curve}, 0, false},
		{"a limit inside", quota.Wrap(retrypolicy.MaxAttempts{Total: 100, Policy: curve}), 0, false},
		{"a function of the caller's",
			retrypolicy.Func(func(n int, _ error) (bool, time.Duration) { return n < 100, 10 * time.Second }), 0, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := retrypolicy.Retrier{Policy: c.policy, Limit: c.limit}
			err := r.Do(context.Background(), func(context.Context) error {
				if time.Since(began) > 10*time.Minute {
					return retrypolicy.Permanent(errors.New("enough"))
				}
				return transport.Network
			})
			took := time.Since(began)
			if c.bounded != errors.Is(err, retrypolicy.OutOfTime) || c.bounded != (took <= retrypolicy.DefaultLimit) ||
				c.bounded && took < retrypolicy.DefaultLimit-11*time.Second {
				t.Errorf("%s: %v after %v", c.name, err, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a context with a deadline is the caller's own limit
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := retrypolicy.Do(ctx, curve, func(context.Context) error { return transport.Network })
		if took := time.Since(began); !errors.Is(err, retrypolicy.PastDeadline) || took < 59*time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // a running attempt is not cut short
		err := retrypolicy.Do(context.Background(), curve, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Hour):
				return nil
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestOnRetrySeesWaitsAtGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := policytest.NewBucket(t, 10, 10, 1)
		quota := policytest.NewQuota(t, &budget.QuotaOptions{Bucket: b, Retry: 2, First: 3, Wait: true, Success: -1})
		type wait struct {
			retry  int
			delay  time.Duration
			failed bool
		}
		var waits []wait
		r := retrypolicy.Retrier{Policy: quota.Wrap(retrypolicy.Immediately{}), OnRetry: func(retry int, delay time.Duration,
			err error) {
			waits = append(waits, wait{retry, delay, err != nil})
		}}
		tries := 0
		if err := r.Do(t.Context(), func(context.Context) error {
			if tries++; tries == 1 {
				return transport.Network
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		want := []wait{{0, 3 * time.Second, false}, {1, 0, true}, {1, 2 * time.Second, true}}
		if len(waits) != len(want) || waits[0] != want[0] || waits[1] != want[1] || waits[2] != want[2] {
			t.Errorf("told %v, want %v", waits, want)
		}
	})
}
