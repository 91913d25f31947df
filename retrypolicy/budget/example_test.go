//go:build !tinygo

package budget_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

// An overloaded service gets fewer and fewer requests, first attempts included. One throttle serves
// all calls of a client.
func ExampleThrottle() {
	throttle, err := budget.NewThrottle(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := retrypolicy.Retrier{
		Policy: throttle.Wrap(retrypolicy.NoRetry{}),
		Rand:   func() uint64 { return 1 << 63 }, // always one half, to make the example deterministic
	}
	for range 4 {
		err := r.Do(context.Background(), func(context.Context) error { return transport.Unavailable })
		fmt.Println(errors.Is(err, retrypolicy.ReasonRejected), err)
	}
	requests, accepts := throttle.Counts(time.Now())
	fmt.Println(requests, accepts)
	// Output:
	// false stopped by the retry policy: service unavailable
	// false stopped by the retry policy: service unavailable
	// true rejected before the attempt
	// true rejected before the attempt
	// 4 0
}

// Even if all calls fail, the retries are at most a tenth of the requests.
func ExampleRetryBudget() {
	budget, err := budget.NewRetryBudget(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := budget.Wrap(retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Backoff{Base: time.Microsecond}})
	for range 100 {
		_ = retrypolicy.Do(context.Background(), p, func(context.Context) error { return transport.Unavailable })
	}
	fmt.Println(budget.Counts(time.Now()))
	// Output: 100 10
}

// At most a fifth of the load may be retries, but one retry is always allowed.
func ExampleConcurrencyBudget() {
	budget, err := budget.NewConcurrencyBudget(&budget.ConcurrencyBudgetOptions{Share: 0.2, MinRetries: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := budget.Wrap(retrypolicy.NoRetry{})
	for range 2 { // first attempts of two calls begin,
		retrypolicy.Inner(p, retrypolicy.Start{}).Admit(retrypolicy.Attempt{})
	}
	for range 4 { // then retries of others
		fmt.Println(retrypolicy.Inner(p, retrypolicy.Start{}).Admit(retrypolicy.Attempt{Retry: 1}))
	}
	fmt.Println(budget.Counts())
	// Output:
	// retry after 0s
	// stop: retry quota exceeded
	// stop: retry quota exceeded
	// stop: retry quota exceeded
	// 3 1
}

// All calls of a process share 20 tokens; a retry costs 5.
func ExampleQuota() {
	bucket, err := budget.NewTokenBucket(20, 0, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	quota, err := budget.NewQuota(&budget.QuotaOptions{Bucket: bucket})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := quota.Wrap(retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Fixed{Delay: time.Millisecond}})
	for range 2 {
		err := retrypolicy.Do(context.Background(), p, func(context.Context) error { return transport.Unavailable })
		fmt.Println(err)
		fmt.Println(bucket.Tokens(time.Now()), "tokens left")
	}
	// Output:
	// out of attempts after 3 retries: service unavailable
	// 5 tokens left
	// retry quota exceeded after 1 retry: service unavailable
	// 0 tokens left
}

// After three failures in a row the service is left alone for a minute. Then one attempt probes it.
func ExampleBreaker() {
	breaker, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 3, Cooldown: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := breaker.Wrap(retrypolicy.NoRetry{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	try := func(err error) {
		call := retrypolicy.Begin(p, "", now)
		switch d, _ := call.Admit(now, 0); {
		case !d.Retry:
			fmt.Println(d, "for", d.Delay)
		case err == nil:
			_ = call.Success(now)
		default:
			_, _ = call.Failure(now, 0, retrypolicy.Classify(err), err)
		}
	}
	try(transport.Unavailable)
	try(transport.Unavailable)
	try(transport.Unavailable)
	fmt.Println(breaker.Status(now).State)
	now = now.Add(20 * time.Second)
	try(nil)
	now = now.Add(40 * time.Second)
	fmt.Println(breaker.Status(now).State)
	try(nil)
	fmt.Println(breaker.Status(now).State)
	// Output:
	// open
	// stop: rejected before the attempt for 40s
	// half-open
	// closed
}
