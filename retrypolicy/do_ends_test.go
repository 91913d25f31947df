package retrypolicy_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
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
			if !errors.Is(err, context.Canceled) || !errors.Is(err, retrypolicy.ReasonCancelled) ||
				errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v is not a context.Canceled", name, err)
			}
			wantNotRetryable(t, name, err)
		})
	}
}

// wantNotRetryable expects that neither errfilter nor an outer Do retries err.
func wantNotRetryable(t *testing.T, name string, err error) {
	t.Helper()
	info := retrypolicy.Classify(err)
	if errfilter.Retryable(err) || errfilter.Of(err).Kind != transport.Cancelled ||
		!errors.Is(err, transport.Cancelled) || info.Verdict != retrypolicy.VerdictFail {
		t.Errorf("%s: %v is retryable %v, judged %+v; want Cancelled, not retryable", name, err,
			errfilter.Retryable(err), info)
	}
	// A token source may use Do under the client's own deadline: a transport knows what its error
	// means.
	if wrapped := error(&transport.Error{Kind: transport.Network, Err: err}); !errfilter.Retryable(wrapped) {
		t.Errorf("%s: %v is not retryable", name, wrapped)
	}
}

// The last failure may be retryable; the end of the context is not.
func TestAnErrorOfACancelledDoIsNotRetryable(t *testing.T) {
	outer := retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Immediately{}}
	p := retrypolicy.Fixed{Delay: time.Second}
	why := &reasonToStop{"shutdown requested"}
	for name, do := range map[string]func(context.Context, func(context.Context) error) error{
		"Do": func(ctx context.Context, op func(context.Context) error) error { return retrypolicy.Do(ctx, p, op) },
		"DoValue": func(ctx context.Context, op func(context.Context) error) error {
			_, err := retrypolicy.DoValue(ctx, p, func(ctx context.Context) (int, error) { return 0, op(ctx) })
			return err
		},
		"a Retrier": func(ctx context.Context, op func(context.Context) error) error {
			r := retrypolicy.Retrier{Policy: p, Timeout: time.Hour, AttemptTimeout: time.Minute}
			return r.Do(ctx, op)
		},
	} {
		for last, failure := range map[string]error{"with a Kind": transport.Network, "plain": errors.New("busy")} {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := retrypolicy.Do(t.Context(), outer, func(ctx context.Context) error {
					ctx, cancel := context.WithCancelCause(ctx)
					time.AfterFunc(1500*time.Millisecond, func() { cancel(why) })
					err := do(ctx, func(context.Context) error {
						calls++
						return failure
					})
					wantNotRetryable(t, name+", "+last, err)
					return err
				})
				var found *reasonToStop
				if calls != 2 || !errors.Is(err, retrypolicy.ReasonNotRetryable) || !errors.Is(err, failure) ||
					!errors.Is(err, context.Canceled) || !errors.As(err, &found) || found != why {
					t.Errorf("%s, %s: %d calls, %v", name, last, calls, err)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) { // a deadline that has passed
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := retrypolicy.Do(ctx, p, func(ctx context.Context) error {
			<-ctx.Done()
			return &transport.Error{Kind: transport.Timeout, Err: ctx.Err()}
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is no DeadlineExceeded", err)
		}
		wantNotRetryable(t, "a deadline", err)
	})
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
			return retrypolicy.Do(ctx, policytest.Must(
				budget.NewQuota(nil)).Wrap(retrypolicy.Fixed{Delay: time.Minute}),
				func(context.Context) error { return transport.Network })
		},
		"Timeout": func(ctx context.Context) error {
			r := retrypolicy.Retrier{Policy: retrypolicy.Fixed{Delay: time.Minute}, Timeout: 2 * time.Second}
			return r.Do(ctx, func(context.Context) error { return transport.Network })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := run(t.Context())
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, transport.Network) ||
				errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			if name != "Timeout" {
				wantNotRetryable(t, name, err)
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
	bucket := policytest.Must(budget.NewTokenBucket(100000, 0, 0))
	quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: bucket}))
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
		{"in one of the rules", retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: kinds,
			Policy: retrypolicy.NoRetry{}}},
			Default: curve}, 0, true},
		{"a device's", compat.AzureJava{}, 0, true},
		{"by name", curve, -1, false},
		{"a limit of its own", retrypolicy.MaxAttempts{Total: 100, Policy: curve}, 0, false},
		{"a limit of another system", compat.AzureJava{Count: 99, Max: 10 * time.Second, Delta: time.Second}, 0, false},
		{"a limit inside a quota", quota.Wrap(retrypolicy.RetryAfter{Policy: retrypolicy.MaxAttempts{Total: 100,
			Policy: curve}}), 0, false},
		{"a limit inside others", budget.NewAdaptive().Wrap(quota.Wrap(
			retrypolicy.MaxElapsed{Limit: time.Hour, Policy: curve})), 0, false},
		{"a limit for each key", policytest.Must(budget.NewPerKey(9, func(string) retrypolicy.Policy {
			return quota.Wrap(retrypolicy.MaxAttempts{Total: 100, Policy: curve})
		})), 0, false},
		{"a limit of each kind", retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: kinds,
			Policy: retrypolicy.NoRetry{}}}, Default: retrypolicy.MaxAttempts{Total: 100, Policy: curve}}, 0, false},
		{"a function of the caller's",
			retrypolicy.Func(func(n int, _ error) (bool, time.Duration) { return n < 100, 10 * time.Second }),
			0, true},
		{"a function of the caller's, by name",
			retrypolicy.Func(func(n int, _ error) (bool, time.Duration) { return n < 100, 10 * time.Second }),
			-1, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := retrypolicy.Retrier{Policy: c.policy, Timeout: c.limit}
			err := r.Do(context.Background(), func(context.Context) error {
				if time.Since(began) > 10*time.Minute {
					return retrypolicy.Permanent(errors.New("enough"))
				}
				return transport.Network
			})
			took := time.Since(began)
			if c.bounded != errors.Is(err, retrypolicy.ReasonOutOfTime) || c.bounded != (took <= retrypolicy.DefaultTimeout) ||
				c.bounded && took < retrypolicy.DefaultTimeout-11*time.Second {
				t.Errorf("%s: %v after %v", c.name, err, took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // a context with a deadline is the caller's own limit
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		err := retrypolicy.Do(ctx, curve, func(context.Context) error { return transport.Network })
		if took := time.Since(began); !errors.Is(err, retrypolicy.ReasonPastDeadline) || took < 59*time.Minute {
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
		b := policytest.Must(budget.NewTokenBucket(10, 10, 1))
		quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, Retry: 2, First: 3, Wait: true,
			Success: -1}))
		type wait struct {
			retry  int
			delay  time.Duration
			failed bool
		}
		var waits []wait
		r := retrypolicy.Retrier{Policy: quota.Wrap(retrypolicy.Immediately{}), OnRetry: func(retry int,
			delay time.Duration,
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

func TestDoDoesNotSpinByAccident(t *testing.T) {
	zero := retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 0 })
	for name, c := range map[string]struct {
		p    retrypolicy.Policy
		want int
	}{
		"a delay of 0": {zero, 1001},
		"a first retry at once, then the policy's delays": {retrypolicy.Func(func(retry int, _ error) (bool,
			time.Duration) {
			return true, time.Duration(retry-1) * 250 * time.Millisecond
		}), 4},
		"a delay of 0 that is meant": {retrypolicy.MaxAttempts{Total: 5000, Policy: retrypolicy.Immediately{}}, 5000},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			tries := 0
			_ = retrypolicy.Do(ctx, c.p, func(context.Context) error { tries++; return transport.Network })
			if tries != c.want {
				t.Errorf("%s: %d tries; want %d", name, tries, c.want)
			}
		})
	}
}

func TestDoEndsWithTheReasonNegativeDelay(t *testing.T) {
	shift := retrypolicy.Func(func(retry int, _ error) (bool, time.Duration) {
		return true,
			time.Second << (retry + 33)
	})
	for _, p := range []retrypolicy.Policy{shift, retrypolicy.RetryAfter{Policy: shift}} {
		err := retrypolicy.Do(t.Context(), p, func(context.Context) error { return transport.Network })
		if !errors.Is(err, retrypolicy.ReasonNegativeDelay) || !errors.Is(err, transport.Network) ||
			err.Error() != "the retry policy returned a negative delay: network failure" {
			t.Errorf("%v does not name the policy's mistake and the failure", err)
		}
	}
}

// A series that its own limits end is as retryable as its last failure.
func TestTheErrorOfADoThatEndedByItselfIsAsRetryableAsItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := retrypolicy.Retrier{Policy: retrypolicy.ExponentialBackoffWithJitter{}, Timeout: time.Second}
		err := r.Do(t.Context(), func(context.Context) error { return transport.Network })
		if errors.Is(err, transport.Cancelled) || !errfilter.Retryable(err) {
			t.Errorf("%v: %+v", err, errfilter.Of(err))
		}
	})
}

// AttemptTimeout bounds one attempt, so a nested Do that stops ahead of it may be repeated.
func TestANestedDoThatAttemptTimeoutEndsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Policy: retrypolicy.Immediately{}, Total: 3},
			AttemptTimeout: time.Second}
		err := r.Do(t.Context(), func(ctx context.Context) error {
			runs++
			return retrypolicy.Do(ctx, retrypolicy.Fixed{Delay: time.Minute},
				func(context.Context) error { return transport.Network })
		})
		if runs != 3 || !errors.Is(err, retrypolicy.ReasonOutOfAttempts) {
			t.Errorf("%d runs, %v", runs, err)
		}
	})
}
