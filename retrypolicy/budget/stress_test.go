//go:build !tinygo

package budget_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// Thousands of users share a chain of policies with state, the service fails and recovers, and
// callers give up: nothing leaks, and no limit is exceeded.
func TestSharedStateUnderStress(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: 2,000 users; HUBLINE_LONG=1 has them")
	}
	for _, wait := range []bool{false, true} {
		t.Run("Wait "+strconv.FormatBool(wait), func(t *testing.T) {
			for range 6 { // with some seeds nearly all calls are rejected
				if stress(t, wait) || t.Failed() {
					return
				}
			}
			t.Error("no seed reached what the test is about")
		})
	}
}

// stress reports whether the breaker was half-open, calls succeeded, the quota refused some, and
// some were rejected.
func stress(t *testing.T, wait bool) bool {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const users, calls, size, probes = 2000, 4, 300, 3
	tokens := policytest.Must(budget.NewTokenBucket(size, 0, 20))
	quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: tokens}))
	breaker := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{
		Failures: 50, Window: 10 * time.Second, Share: 0.3, Cooldown: 2 * time.Second, Growth: 2, Probes: probes,
		Successes: 5, Wait: wait,
	}))
	throttle := policytest.Must(budget.NewThrottle(&budget.ThrottleOptions{
		Window: 5 * time.Second, Ceiling: 0.5, CountEnded: wait,
	}))
	crowd := policytest.Must(budget.NewConcurrencyBudget(nil))
	shares := policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{MinRetries: 500}))
	ratio := policytest.Must(budget.NewRetryThrottle(1000, 0.1))

	curve := retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{Base: 50 * time.Millisecond,
		Max:    time.Second,
		Jitter: retrypolicy.JitterFull}}
	chain := quota.Wrap(breaker.Wrap(throttle.Wrap(crowd.Wrap(ratio.Wrap(shares.Wrap(curve))))))

	var outside, crowded, halfOpen, succeeded, outOfQuota, rejected atomic.Bool
	testkit.Bubble(t, func(t *testing.T) {
		began := time.Now()
		// The service is down for 3 s in every 10, and short of capacity in between.
		serve := func(ctx context.Context, rng *rand.Rand) error {
			if n := tokens.Tokens(time.Now()); n < 0 || n > size {
				outside.Store(true)
			}
			if rng.IntN(4) == 0 { // not each time: a look also moves the breaker on
				b := breaker.Status(time.Now())
				if b.InFlight == 0 || b.Probes > min(b.InFlight, probes) {
					crowded.Store(true)
				}
				if b.State == budget.BreakerHalfOpen {
					halfOpen.Store(true)
				}
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Duration(1 + rng.Int64N(int64(500*time.Millisecond)))):
			}
			down := time.Since(began)%(10*time.Second) < 3*time.Second
			switch n := rng.IntN(100); {
			case down && n < 90:
				return transport.Unavailable
			case n < 5:
				return transport.Throttled
			case n < 6:
				return transport.NotFound
			case n < 7:
				return errStress
			}
			return nil
		}
		var all sync.WaitGroup
		for u := range users {
			all.Add(1)
			go func() {
				defer all.Done()
				rng := rand.New(rand.NewPCG(seed, uint64(u)))
				r := retrypolicy.Retrier{Policy: chain, Key: strconv.Itoa(u), Rand: rng.Uint64}
				for range calls {
					time.Sleep(time.Duration(rng.Int64N(int64(10 * time.Second))))
					ctx, cancel := context.WithCancel(context.Background())
					if rng.IntN(5) == 0 {
						ctx, cancel = context.WithTimeout(context.Background(), time.Duration(1+rng.Int64N(int64(time.Second))))
					}
					err := r.Do(ctx, func(ctx context.Context) error { return serve(ctx, rng) })
					cancel()
					failed, ok := errors.AsType[*retrypolicy.Error](err)
					switch {
					case !ok:
						succeeded.Store(true)
					case failed.Reason == retrypolicy.ReasonOutOfQuota:
						outOfQuota.Store(true)
					case failed.Reason == retrypolicy.ReasonRejected:
						rejected.Store(true)
					}
				}
			}()
		}
		all.Wait()
		now := time.Now()
		if s := breaker.Status(now); s.InFlight != 0 || s.Probes != 0 || s.Openings == 0 {
			t.Errorf("seed %d: at the end the breaker stands at %+v", seed, s)
		}
		if n, retries := crowd.Counts(); n != 0 || retries != 0 {
			t.Errorf("seed %d: at the end %d in flight, %d of them retries", seed, n, retries)
		}
		if n := ratio.Tokens(); n < 0 || n > 1000 {
			t.Errorf("seed %d: %v tokens", seed, n)
		}
		if requests, accepts := throttle.Counts(now.Add(5 * time.Second)); requests != 0 || accepts != 0 {
			t.Errorf("seed %d: after the window the throttle counts %d, %d", seed, requests, accepts)
		}
		if requests, retries := shares.Counts(now.Add(2 * time.Minute)); requests != 0 || retries != 0 {
			t.Errorf("seed %d: after the window the budget counts %d, %d", seed, requests, retries)
		}
	})
	if outside.Load() {
		t.Errorf("seed %d: the quota's tokens left their bounds", seed)
	}
	if crowded.Load() {
		t.Errorf("seed %d: the breaker let in too many probes, or forgot an attempt", seed)
	}
	if n := tokens.Tokens(time.Now()); n != size {
		t.Errorf("seed %d: %d tokens after decades of refill, want %d", seed, n, size)
	}
	return halfOpen.Load() && succeeded.Load() && outOfQuota.Load() && rejected.Load()
}

var errStress = retrypolicy.Permanent(errors.New("a fault of the operation"))
