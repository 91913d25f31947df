// Package policytest has helpers for the tests of several packages below retrypolicy.
package policytest

import (
	"context"
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/transport"
)

// The three draws of the tables: the smallest, the middle, and the largest, which is just below 1.
const (
	DrawZero = 0
	DrawHalf = 1 << 63
	DrawLast = math.MaxUint64
)

// Again is a policy that always retries after d.
func Again(d time.Duration) retrypolicy.Policy {
	if d == 0 {
		return retrypolicy.Immediately{}
	}
	return retrypolicy.Fixed{Delay: d}
}

// As returns a with the outcome err; nil is a success.
func As(a retrypolicy.Attempt, err error) retrypolicy.Attempt {
	a.Err, a.Kind = err, transport.KindOf(err)
	return a
}

// At returns an attempt at the time Day+d.
func At(d time.Duration) retrypolicy.Attempt { return retrypolicy.Attempt{Now: Day.Add(d)} }

// Bucketed gives o a bucket that the test can inspect, of the given size and with the given tokens.
func Bucketed(o *compat.AWSOptions, size, tokens int) *budget.TokenBucket {
	o.Quota.Bucket = Must(budget.NewTokenBucket(size, size-tokens, 0))
	return o.Quota.Bucket
}

// CheckInvalid is CheckRefusal for the parameters of p.
func CheckInvalid(t *testing.T, p retrypolicy.Policy, want string) {
	t.Helper()
	CheckRefusal(t, retrypolicy.Validate(p), want)
}

// CheckRefusal expects an error of Kind Invalid that contains want, or no error if want is empty.
func CheckRefusal(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (!errors.Is(err, transport.Invalid) || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one of Kind Invalid with %q", err, want)
	}
}

// Day is the start time of these tests' clocks.
var Day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// Draw returns the smallest draw whose fraction is u or more, for u from 0 to 1. It takes u as its
// shortest decimal form.
func Draw(u float64) uint64 {
	if u >= 1 {
		return DrawLast
	}
	const digits = 1_000_000_000
	n := big.NewInt(int64(math.Round(u * digits)))
	n.Lsh(n, 64).Add(n, big.NewInt(digits-1)).Div(n, big.NewInt(digits))
	return n.Uint64()
}

// Huge are counts far beyond every cap, including those where a shift or an addition would overflow
// 32 or 64 bits.
var Huge = []int{21, 31, 32, 33, 62, 63, 64, 65, 66, 127, 128, 1 << 30, math.MaxInt32 - 1, math.MaxInt32}

// Series begins a series of p.
func Series(p retrypolicy.Policy) retrypolicy.Series {
	return retrypolicy.Inner(p, retrypolicy.Start{})
}

// Report reports the end of an attempt with err to s: nil is a success, and any other error may be
// repeated.
func Report(s retrypolicy.Series, a retrypolicy.Attempt, err error) {
	if err == nil {
		s.Report(retrypolicy.VerdictSucceed, a)
		return
	}
	s.Report(retrypolicy.VerdictAgain, As(a, err))
}

// Retried returns a as the n-th retry.
func Retried(a retrypolicy.Attempt, n int) retrypolicy.Attempt {
	a.Retry = n
	return a
}

// Sequence returns the decisions of p about the first count retries of a series.
func Sequence(p retrypolicy.Policy, a retrypolicy.Attempt, count int) []retrypolicy.Decision {
	var all []retrypolicy.Decision
	s := Series(p)
	defer s.End()
	for n := 1; n <= count; n++ {
		d := s.Decide(Retried(a, n))
		all = append(all, d)
		if !d.Retry {
			break
		}
	}
	return all
}

// Throttled has the constants for a service that asks for fewer requests.
var Throttled = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

// WantDelays compares the first delays of a series, with the tolerance tol.
func WantDelays(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, tol time.Duration, want ...time.Duration) {
	t.Helper()
	got := Sequence(p, a, len(want))
	if len(got) != len(want) {
		t.Fatalf("%+v: %d decisions, the last %+v; want %d retries", p, len(got), got[len(got)-1], len(want))
	}
	for i, d := range got {
		if off := d.Delay - want[i]; !d.Retry || off < -tol || off > tol {
			t.Errorf("%+v: retry %d = %v (%d ns), want after %v", p, i+1, d, d.Delay, want[i])
		}
	}
}

func CheckDelay(t *testing.T, p retrypolicy.Policy, x int, draw uint64, want time.Duration) {
	t.Helper()
	got := p.Decide(retrypolicy.Attempt{Retry: x, Rand: draw})
	if got != (retrypolicy.Decision{Retry: true, Delay: want}) {
		t.Errorf("F(%d) with draw %#x = %+v (%d ns), want a retry after %v (%d ns)", x, draw, got, got.Delay, want, want)
	}
}

// Must returns v, the result of a constructor that must not fail.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func Contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

func Sec(s float64) time.Time { return Epoch.Add(time.Duration(math.Round(s * 1e9))) }

// WantError expects an *Error with reason. errors.Is must match reason and all of is.
func WantError(t *testing.T, err error, reason retrypolicy.Reason, retries int, is ...error) {
	t.Helper()
	var e *retrypolicy.Error
	if !errors.As(err, &e) || e.Reason != reason || e.Retries != retries || !errors.Is(err, reason) {
		t.Errorf("%v; want %v after %d retries", err, reason, retries)
		return
	}
	for _, target := range is {
		if !errors.Is(err, target) {
			t.Errorf("%v: errors.Is does not find %v", err, target)
		}
	}
}

// WantStop expects p to stop for reason.
func WantStop(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, reason retrypolicy.Reason) {
	t.Helper()
	if d := p.Decide(a); d.Retry || d.Reason != reason || d.Delay != 0 {
		t.Errorf("%+v, %+v: %+v, want a stop with %v", p, a, d, reason)
	}
}

var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var Lost = &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection}

// StatusError is an error with the status of an HTTP answer.
type StatusError struct {
	Status int
	After  time.Duration
}

func (e *StatusError) Error() string             { return "status" }
func (e *StatusError) HTTPStatusCode() int       { return e.Status }
func (e *StatusError) RetryAfter() time.Duration { return e.After }

// Status returns a StatusError with the status n.
func Status(n int) error { return &StatusError{Status: n} }

// APIError and HTTPError have the methods of the errors of aws-sdk-go-v2.
type APIError struct{ Code string }

func (e *APIError) Error() string     { return e.Code }
func (e *APIError) ErrorCode() string { return e.Code }

// HTTPError wraps an error.
type HTTPError struct {
	Status int
	Err    error
}

func (e *HTTPError) Error() string       { return "http " + e.Err.Error() }
func (e *HTTPError) Unwrap() error       { return e.Err }
func (e *HTTPError) HTTPStatusCode() int { return e.Status }

// Script returns an operation that fails with the errors of the list in order and repeats the last
// one. It counts its calls.
func Script(calls *int, list ...error) func(context.Context) error {
	return func(context.Context) error {
		err := list[min(*calls, len(list)-1)]
		*calls++
		return err
	}
}

// Retries runs an operation under r, in a bubble. It returns the number of calls, the total time,
// and the result.
func Retries(t *testing.T, r retrypolicy.Retrier, list ...error) (calls int, took time.Duration, err error) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		began := time.Now()
		err = r.Do(t.Context(), Script(&calls, list...))
		took = time.Since(began)
	})
	return calls, took, err
}
