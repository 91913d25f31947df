//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A service that is overloaded is asked less and less, first tries included. One throttle serves
// all calls of a client.
func ExampleThrottle() {
	throttle, err := retrypolicy.NewThrottle(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := retrypolicy.Retrier{
		Policy: throttle.Wrap(retrypolicy.NoRetry{}),
		Rand:   func() uint64 { return 1 << 63 }, // always one half, for the sake of the example
	}
	for range 4 {
		err := r.Do(context.Background(), func(context.Context) error { return transport.Unavailable })
		fmt.Println(errors.Is(err, retrypolicy.Rejected), err)
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

// However many calls fail, at most a tenth as many retries are made.
func ExampleRetryBudget() {
	budget, err := retrypolicy.NewRetryBudget(nil)
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

// At most half of what is in flight may be retries.
func ExampleConcurrencyBudget() {
	budget, err := retrypolicy.NewConcurrencyBudget(&retrypolicy.ConcurrencyBudgetOptions{Share: 0.2, Least: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := budget.Wrap(retrypolicy.NoRetry{})
	for range 2 { // first tries of two calls begin,
		retrypolicy.Admit(p, retrypolicy.Attempt{})
	}
	for range 4 { // then retries of others
		fmt.Println(retrypolicy.Admit(p, retrypolicy.Attempt{Retry: 1}))
	}
	fmt.Println(budget.InFlight())
	// Output:
	// retry after 0s
	// stop: retry quota exceeded
	// stop: retry quota exceeded
	// stop: retry quota exceeded
	// 3 1
}

// The delays of the four retries, with the middle draw. The server asked for a wait of its own
// before the third, and the growth begins anew.
func ExampleGRPC() {
	p := retrypolicy.GRPC{Attempts: 5, Initial: 100 * time.Millisecond, Max: time.Second, Multiplier: 2}
	var last retrypolicy.Decision
	for n := 1; n <= 5; n++ {
		a := retrypolicy.Attempt{Retry: n, Rand: 1 << 63, Last: last}
		if n == 3 {
			a.After = retrypolicy.Pushback("1500")
		}
		last = p.Decide(a)
		fmt.Println(last)
	}
	// Output:
	// retry after 100ms
	// retry after 200ms
	// retry after 1.5s
	// retry after 100ms
	// stop: out of attempts
}

// One throttle for each server: half of the tokens gone, and there are no more retries until enough
// calls succeed.
func ExampleRetryThrottle() {
	throttle, err := retrypolicy.NewRetryThrottle(10, 0.1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := throttle.Wrap(retrypolicy.GRPC{Attempts: 3, Initial: time.Second, Max: time.Minute, Multiplier: 2})
	failure := retrypolicy.Attempt{Kind: transport.Unavailable, Err: transport.Unavailable, Rand: 1 << 63}
	failure.Count = 5
	retrypolicy.Observe(p, failure)
	failure.Retry = 1
	fmt.Println(throttle.Tokens(), p.Decide(failure))
	retrypolicy.Observe(p, retrypolicy.Attempt{}) // a success
	fmt.Println(throttle.Tokens(), p.Decide(failure))
	// Output:
	// 5 stop: retry quota exceeded
	// 5.1 retry after 1s
}

// rpcError stands for the error of a library for gRPC.
type rpcError struct {
	code    uint8
	trailer string
}

func (rpcError) Error() string { return "rpc failed" }

// The status is found by a function, so this package needs no library for gRPC.
func ExampleNewGRPCClassifier() {
	classify, err := retrypolicy.NewGRPCClassifier(func(err error) (retrypolicy.GRPCCode, string, bool) {
		var s rpcError
		if !errors.As(err, &s) {
			return 0, "", false
		}
		return retrypolicy.GRPCCode(s.code), s.trailer, true
	}, retrypolicy.GRPCUnavailable)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []rpcError{{14, "250"}, {14, "-1"}, {5, ""}} {
		info := classify(s)
		fmt.Println(info.Verdict == retrypolicy.Again, info.Kind, info.After)
	}
	// Output:
	// true service unavailable 250ms
	// true service unavailable -1ns
	// false not found 0s
}

// Three failures in a row, and the service is left alone for a minute. Then one try may see how it
// is.
func ExampleBreaker() {
	breaker, err := retrypolicy.NewBreaker(&retrypolicy.BreakerOptions{Failures: 3, Cooldown: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := breaker.Wrap(retrypolicy.NoRetry{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	try := func(err error) {
		a := retrypolicy.Attempt{Now: now, Err: err, Kind: transport.KindOf(err)}
		if d := retrypolicy.Admit(p, a); d.Retry {
			retrypolicy.Observe(p, a)
		} else {
			fmt.Println(d, "for", d.Delay)
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

// A connection that is made and dropped at once, again and again, is no success: with MinUp the
// breaker sees it, and the loop waits.
func ExampleBreaker_Lost() {
	breaker, err := retrypolicy.NewBreaker(&retrypolicy.BreakerOptions{Failures: 3, Cooldown: time.Minute,
		MinUp: 30 * time.Second, Wait: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	p := breaker.Wrap(retrypolicy.Backoff{Base: time.Second})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for range 4 {
		fmt.Println(retrypolicy.Admit(p, retrypolicy.Attempt{Now: now}))
		retrypolicy.Observe(p, retrypolicy.Attempt{Now: now}) // connected
		now = now.Add(time.Second)
		breaker.Lost(now)
	}
	// Output:
	// retry after 0s
	// retry after 0s
	// retry after 0s
	// retry after 1m0s
}
