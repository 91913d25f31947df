package main

import (
	"context"
	"errors"
	"time"

	v4 "github.com/cenkalti/backoff/v4"
	v5 "github.com/cenkalti/backoff/v5"
)

// spreadBoth is the randomness of the libraries that spread in both directions: from 0.5 to 1.5
// times the delay, the default of cenkalti/backoff.
const spreadBoth = 0.5

func exponentialV5(base time.Duration) *v5.ExponentialBackOff {
	b := &v5.ExponentialBackOff{
		InitialInterval: base, Multiplier: curveFactor, MaxInterval: curveMax * base, RandomizationFactor: spreadBoth,
	}
	b.Reset()
	return b
}

func exponentialV4(base time.Duration) *v4.ExponentialBackOff {
	return v4.NewExponentialBackOff(v4.WithInitialInterval(base), v4.WithMultiplier(curveFactor),
		v4.WithMaxInterval(curveMax*base),
		v4.WithRandomizationFactor(spreadBoth), v4.WithMaxElapsedTime(0))
}

// A back-off of this library is one series with its state. The benchmark reuses one, which costs
// less than its callers pay, and Reset begins the next series.
func cenkaltiRetries() ([]RetryCase, error) {
	const nameV5, nameV4 = "cenkalti/backoff v5", "cenkalti/backoff v4"
	decideV5, decideV4 := opaque[v5.BackOff](exponentialV5(decided)), opaque[v4.BackOff](exponentialV4(decided))
	optionsV5 := func(base time.Duration) []v5.RetryOption {
		return []v5.RetryOption{v5.WithBackOff(exponentialV5(base)), v5.WithMaxElapsedTime(0)}
	}
	succeedV5, shortV5 := optionsV5(decided), optionsV5(slept)
	succeedV4, shortV4 := opaque[v4.BackOff](exponentialV4(decided)), opaque[v4.BackOff](exponentialV4(slept))
	ctx := context.Background()
	succeed := func() (struct{}, error) { return struct{}{}, succeedAtOnce() }
	twiceV5, twiceV4 := failTwice(), failTwice()
	fail := func() (struct{}, error) { return struct{}{}, twiceV5() }
	return []RetryCase{
		deciding(Decide, nameV5, "NextBackOff, which draws; Reset before each eighth", func(retry int) (time.Duration,
			error) {
			if retry == 1 {
				decideV5.Reset()
			}
			return decideV5.NextBackOff(), nil
		}),
		deciding(Decide, nameV4, "the same; reads the clock too", func(retry int) (time.Duration, error) {
			if retry == 1 {
				decideV4.Reset()
			}
			return decideV4.NextBackOff(), nil
		}),
		deciding(Judge, nameV5,
			"what Retry does between a failure and its sleep, by hand: errors.As for two types, NextBackOff",
			func(retry int) (time.Duration, error) {
				var permanent *v5.PermanentError
				if errors.As(refused, &permanent) {
					return 0, errNoRetry
				}
				if retry == 1 {
					decideV5.Reset()
				}
				delay := decideV5.NextBackOff()
				var after *v5.RetryAfterError
				if errors.As(refused, &after) {
					delay = after.Duration
				}
				return delay, nil
			}),
		deciding(Judge, nameV4, "the same: errors.As for one type, NextBackOff", func(retry int) (time.Duration, error) {
			var permanent *v4.PermanentError
			if errors.As(refused, &permanent) {
				return 0, errNoRetry
			}
			if retry == 1 {
				decideV4.Reset()
			}
			return decideV4.NextBackOff(), nil
		}),
		running(Succeed, nameV5, "Retry, with a back-off made before", func() error {
			_, err := v5.Retry(ctx, succeed, succeedV5...)
			return err
		}),
		running(RetryTwice, nameV5, "Retry, with a back-off made before", func() error {
			_, err := v5.Retry(ctx, fail, shortV5...)
			return err
		}),
		running(Succeed, nameV4, "Retry, with a back-off made before",
			func() error { return v4.Retry(succeedAtOnce, succeedV4) }),
		running(RetryTwice, nameV4, "Retry, with a back-off made before", func() error { return v4.Retry(twiceV4, shortV4) }),
	}, nil
}
