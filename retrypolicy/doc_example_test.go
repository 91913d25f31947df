//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

// An operation that fails twice and then succeeds.
func Example() {
	tries := 0
	err := retrypolicy.Do(context.Background(), retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Backoff{
		Base: time.Millisecond, Max: 10 * time.Millisecond, Jitter: retrypolicy.JitterFull,
	}}, func(context.Context) error {
		tries++
		if tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	fmt.Println(tries, err)
	// Output: 3 <nil>
}

// A call of a cloud service with all useful policies. All calls of the process share the quota and
// the breaker.
func Example_cloudCall() {
	quota, err := budget.NewQuota(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	breaker, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 20, Window: time.Minute, Share: 0.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	r := retrypolicy.Retrier{
		// SafeOnly: after a time-out the service may have acted, so that is not repeated.
		Policy: quota.Wrap(breaker.Wrap(retrypolicy.SafeOnly{
			Policy: retrypolicy.MaxElapsed{Limit: time.Minute, LookAhead: true,
				Policy: retrypolicy.MaxAttempts{Total: 4,
					Policy: retrypolicy.RetryAfter{Max: 30 * time.Second,
						Policy: retrypolicy.Backoff{Base: 100 * time.Millisecond, Max: 20 * time.Second,
							Jitter: retrypolicy.JitterFull}}}}})),
		AttemptTimeout: 10 * time.Second,
	}
	if err := r.Validate(); err != nil {
		fmt.Println(err)
		return
	}
	err = r.Do(context.Background(), func(context.Context) error { return transport.Timeout })
	fmt.Println(err)
	// Output: not safe to repeat: timed out
}

// The connections of a gateway share one breaker. While the service is down, a single connection
// probes it for all. A probe may take the clients' DialTimeout, and is reported as a success after
// their StableTime, 30 s each; the cooldown is longer than both.
func Example_gateway() {
	breaker, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 20, Window: time.Minute,
		Cooldown: 90 * time.Second, Growth: 2, Wait: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	// the RetryPolicy of each client; set MessagePolicy separately
	p := breaker.Wrap(retrypolicy.ExponentialBackoffWithJitter{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	client := func() retrypolicy.Series { return retrypolicy.Inner(p, retrypolicy.Start{}) }
	for range 20 { // twenty devices lose their connection
		c := client()
		c.Admit(retrypolicy.Attempt{Now: now})
		c.Report(retrypolicy.VerdictAgain, retrypolicy.Attempt{Now: now, Kind: transport.Network, Err: transport.Network})
	}
	fmt.Println(client().Admit(retrypolicy.Attempt{Now: now}))
	// half a cooldown spreads the waiting clients
	fmt.Println(client().Admit(retrypolicy.Attempt{Now: now, Rand: 1 << 63}))
	now = now.Add(90 * time.Second)
	fmt.Println(client().Admit(retrypolicy.Attempt{Now: now}))
	fmt.Println(client().Admit(retrypolicy.Attempt{Now: now}))
	// Output:
	// retry after 1m30s
	// retry after 1m52.5s
	// retry after 0s
	// retry after 11.25s
}
