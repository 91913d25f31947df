package main

import (
	"context"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
)

func failsafePolicy(base time.Duration) retrypolicy.Builder[any] {
	return retrypolicy.NewBuilder[any]().WithMaxRetries(retries).WithBackoffFactor(base, curveMax*base,
		curveFactor).WithJitterFactor(spreadBoth)
}

// This library decides only within an execution, right before it sleeps. So a decision is an eighth
// of an execution with eight failures, in a context that ends each sleep before it begins.
func failsafeRetries() ([]RetryCase, error) {
	const name = "failsafe-go"
	waking := newWakingContext()
	decide := failsafe.With[any](failsafePolicy(decided).Build()).WithContext(waking)
	succeed := failsafe.With[any](failsafePolicy(decided).Build())
	short := failsafe.With[any](failsafePolicy(slept).Build())
	twice := failTwice()
	return []RetryCase{
		{
			Task: Decide, Library: name, Does: "an eighth of an execution with eight failures, without its sleep; draws",
			Run: func(n int) error {
				for n > 0 {
					failures := min(n, retries)
					n -= failures
					if err := decide.Run(failing(failures)); err != nil {
						return err
					}
				}
				return nil
			},
			Curve: func() ([]time.Duration, error) {
				var delays []time.Duration
				listened := failsafePolicy(decided).OnRetryScheduled(func(e failsafe.ExecutionScheduledEvent[any]) {
					delays = append(delays, e.Delay)
				}).Build()
				err := failsafe.With[any](listened).WithContext(waking).Run(failing(retries))
				return delays, err
			},
		},
		running(Succeed, name, "Run, with an executor made before", func() error { return succeed.Run(succeedAtOnce) }),
		running(RetryTwice, name, "Run, with an executor made before", func() error { return short.Run(twice) }),
	}, nil
}

// failing makes an operation that fails that many times, then succeeds.
func failing(failures int) func() error {
	return func() error {
		if failures == 0 {
			return nil
		}
		failures--
		return refused
	}
}

// wakingContext is a context that wakes sleepers although it has not ended.
type wakingContext struct {
	context.Context
	done chan struct{}
}

func newWakingContext() wakingContext {
	done := make(chan struct{})
	close(done)
	return wakingContext{context.Background(), done}
}

func (a wakingContext) Done() <-chan struct{} { return a.done }
