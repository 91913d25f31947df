//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// The verdict depends on value and error together.
func TestUntil(t *testing.T) {
	missing := errors.New("missing")
	type answer struct {
		state string
		err   error
	}
	judge := func(state string, err error) retrypolicy.Info {
		switch {
		case errors.Is(err, missing):
			return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed} // waits until it is gone
		case state == "failed":
			return retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: transport.Conflict}
		case state == "busy":
			return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Throttled}
		case state == "deleting" && err == nil:
			return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain}
		}
		return retrypolicy.Info{} // as Do does
	}
	for _, c := range []struct {
		name    string
		answers []answer
		value   string
		reason  retrypolicy.Reason // ByPolicy: success
		is      error
		took    time.Duration
	}{
		{"retry on a value, succeed on an error", []answer{{"deleting", nil}, {"deleting", nil}, {"", missing}}, "", 0, nil,
			2 * time.Second},
		{"a value that is what was waited for", []answer{{"deleting", nil}, {"gone", nil}}, "gone", 0, nil, time.Second},
		{"a value that fails", []answer{{"deleting", nil}, {"failed", nil}}, "failed", retrypolicy.ReasonNotRetryable,
			retrypolicy.ErrFailed, time.Second},
		{"a value with a class of its own", []answer{{"busy", nil}, {"gone", nil}}, "gone", 0, nil, time.Minute},
		{"an error left to the classifiers", []answer{{"", transport.Network}, {"gone", nil}}, "gone", 0, nil, time.Second},
		{"an error that they fail", []answer{{"old", transport.Forbidden}}, "old", retrypolicy.ReasonNotRetryable,
			transport.Forbidden, 0},
		{"never", []answer{{"deleting", nil}}, "deleting", retrypolicy.ReasonOutOfAttempts, retrypolicy.ErrNotYet,
			3 * time.Second},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.ByKind{
				Rules:   []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Throttled), Policy: policytest.Again(time.Minute)}},
				Default: policytest.Again(time.Second),
			}}}
			began, n := time.Now(), 0
			value, err := retrypolicy.Until(t.Context(), &r, func(context.Context) (string, error) {
				a := c.answers[min(n, len(c.answers)-1)]
				n++
				return a.state, a.err
			}, judge)
			if value != c.value || time.Since(began) != c.took {
				t.Errorf("%s: %q after %v", c.name, value, time.Since(began))
			}
			if c.is == nil {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				return
			}
			wantError(t, err, c.reason, n-1, c.is)
		})
	}
}

// The end of the context ends the polling, with the context's error and its cause, and without
// another call.
func TestUntilEndsWithItsContext(t *testing.T) {
	why := errors.New("shutdown requested")
	for name, op := range map[string]func(context.Context) (string, error){
		"between two calls": func(context.Context) (string, error) { return "running", nil },
		"during a call":     func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() },
	} {
		testkit.Bubble(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(1500*time.Millisecond, func() { cancel(why) })
			calls := 0
			r := retrypolicy.Retrier{Policy: policytest.Again(time.Second)}
			_, err := retrypolicy.Until(ctx, &r, func(ctx context.Context) (string, error) {
				calls++
				return op(ctx)
			}, func(_ string, err error) retrypolicy.Info {
				if err != nil {
					return retrypolicy.Info{}
				}
				return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain}
			})
			if !errors.Is(err, context.Canceled) || !errors.Is(err, why) || !errors.Is(err, retrypolicy.ReasonCancelled) {
				t.Errorf("%s: %v", name, err)
			}
			if info := retrypolicy.Classify(err); info.Verdict != retrypolicy.VerdictFail {
				t.Errorf("%s: %v is judged %+v, want a failure that is not retried", name, err, info)
			}
			if calls > 2 {
				t.Errorf("%s: %d calls", name, calls)
			}
		})
	}
}

// Policies, callbacks and the caller see the operation's own error, not the judgement around it.
func TestUntilHidesItsJudgement(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		busy := errors.New("busy")
		var told []error
		r := retrypolicy.Retrier{
			Policy: retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
				told = append(told, last)
				return retry < 2, time.Second
			}),
			OnRetry: func(_ int, _ time.Duration, err error) { told = append(told, err) },
		}
		_, err := retrypolicy.Until(t.Context(), &r, func(context.Context) (int, error) { return 0, busy },
			func(int, error) retrypolicy.Info { return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain} })
		var e *retrypolicy.Error
		if !errors.As(err, &e) || !errors.Is(e.Err, busy) {
			t.Errorf("%v", err)
		}
		for _, seen := range told {
			if !errors.Is(seen, busy) {
				t.Errorf("told %v", seen)
			}
		}
		if len(told) != 3 {
			t.Errorf("told %d times", len(told))
		}
	})
}
