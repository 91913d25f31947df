package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go/middleware"
)

func standard(base time.Duration, quota retry.RateLimiter) *retry.Standard {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts, o.RateLimiter = retries+1, quota
		o.BaseDelay = base
		o.MaxBackoff = curveMax * base
	})
}

// The library runs operations in a middleware for requests of services.
func awsRetries() ([]RetryCase, error) {
	const name = "aws-sdk-go-v2"
	r := opaque[aws.RetryerV2](standard(decided, ratelimit.NewTokenRateLimit(retry.DefaultRetryRateTokens)))
	ctx := context.Background()
	judge := func(attempt int, failure error) (time.Duration, error) {
		if !r.IsErrorRetryable(failure) {
			return 0, errNoRetry
		}
		return r.RetryDelay(attempt, failure)
	}
	return []RetryCase{
		deciding(Decide, name, "RetryDelay; draws from crypto/rand",
			func(n int) (time.Duration, error) { return r.RetryDelay(n, refused) }),
		deciding(Judge, name, "IsErrorRetryable and RetryDelay; a refused connection",
			func(n int) (time.Duration, error) { return judge(n, refused) }),
		deciding(Judge, name, "IsErrorRetryable and RetryDelay; an error with a method RetryableError",
			func(n int) (time.Duration, error) { return judge(n, told) }),
		deciding(Charge, name, "IsErrorRetryable, GetRetryToken, RetryDelay and the release", func(n int) (time.Duration,
			error) {
			if !r.IsErrorRetryable(refused) {
				return 0, errNoRetry
			}
			release, err := r.GetRetryToken(ctx, refused)
			if err != nil {
				return 0, err
			}
			delay, err := r.RetryDelay(n, refused)
			if err != nil {
				return 0, err
			}
			return delay, release(nil)
		}),
		running(Succeed, name, "its retry middleware, without quota", attempts(standard(decided, ratelimit.None),
			succeedAtOnce)),
		running(RetryTwice, name, "its retry middleware, without quota", attempts(standard(slept, ratelimit.None),
			failTwice())),
	}, nil
}

// attempts runs op in the middleware, with a request that costs nothing to copy.
func attempts(r *retry.Standard, op func() error) func() error {
	m := retry.NewAttemptMiddleware(r, func(request any) any { return request })
	next := middleware.FinalizeHandlerFunc(func(context.Context, middleware.FinalizeInput) (middleware.FinalizeOutput,
		middleware.Metadata, error) {
		return middleware.FinalizeOutput{}, middleware.Metadata{}, op()
	})
	ctx := context.Background()
	return func() error {
		_, _, err := m.HandleFinalize(ctx, middleware.FinalizeInput{}, next)
		return err
	}
}
