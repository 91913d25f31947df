package compat_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestFetchRetryDefaults(t *testing.T) {
	f := compat.FetchRetryDefaults()
	one := f
	one.Retries = 1
	none := f
	none.Retries = 0
	listed := f
	listed.On = []int{202, 503}
	for _, c := range []struct {
		name   string
		policy compat.FetchRetry
		list   []error
		calls  int
		took   time.Duration
		want   error // found in the result
	}{
		{"network error for ever", f, []error{policytest.Lost}, 4, 3 * s, policytest.Lost},
		{"one retry", one, []error{policytest.Lost}, 2, s, policytest.Lost},
		{"no retry", none, []error{policytest.Lost}, 1, 0, policytest.Lost},
		{"an error that others think final", f, []error{context.DeadlineExceeded, transport.Unauthorized, transport.Invalid},
			4, 3 * s, transport.Invalid},
		{"without a list every answer is final", f, []error{policytest.Status(503)}, 1, 0, retrypolicy.ReasonNotRetryable},
		{"network error, then an answer", f, []error{policytest.Lost, policytest.Status(500)}, 2, s,
			retrypolicy.ReasonNotRetryable},
		{"listed", listed, []error{policytest.Status(503)}, 4, 3 * s, retrypolicy.ReasonOutOfAttempts},
		{"not listed", listed, []error{policytest.Status(500)}, 1, 0, retrypolicy.ReasonNotRetryable},
		{"a success that is listed", listed, []error{policytest.Status(202), policytest.Status(202), nil}, 3, 2 * s, nil},
		{"a success that is not", listed, []error{policytest.Status(503), policytest.Status(201)}, 2, s, nil},
		{"permanent", listed, []error{retrypolicy.Permanent(policytest.Status(503))}, 1, 0, retrypolicy.ReasonNotRetryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, took, err := policytest.Retries(t, retrypolicy.Retrier{Policy: c.policy, Classify: c.policy.Classify},
				c.list...)
			if calls != c.calls || took != c.took || !errors.Is(err, c.want) {
				t.Errorf("%d calls in %v, %v; want %d in %v, %v", calls, took, err, c.calls, c.took, c.want)
			}
		})
	}
}

// OnFunc decides alone: Retries is ignored.
func TestFetchRetryFunctions(t *testing.T) {
	var told, delayed []int
	f := compat.FetchRetry{
		Retries: 2,
		OnFunc:  func(attempt int, err error) bool { told = append(told, attempt); return attempt < 5 },
		DelayFunc: func(attempt int, err error) time.Duration {
			delayed = append(delayed, attempt)
			return s << attempt
		},
	}
	calls, took, err := policytest.Retries(t, retrypolicy.Retrier{Policy: f, Classify: f.Classify}, policytest.Status(404),
		policytest.Lost, policytest.Status(200))
	if calls != 6 || took != 31*s || !errors.Is(err, retrypolicy.ReasonPolicy) {
		t.Errorf("%d calls in %v, %v; want 6 in 31s, stopped by the policy", calls, took, err)
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !reflect.DeepEqual(told, want) || !reflect.DeepEqual(delayed, want[:5]) {
		t.Errorf("OnFunc was told %v, DelayFunc %v", told, delayed)
	}
	checkDelay(t, compat.FetchRetry{Retries: 1,
		DelayFunc: func(int, error) time.Duration { return -1 }}, 1, policytest.DrawZero, 0)
}

// The time limit shortens the last delay and allows one more attempt at its end.
func TestFailsafeEndsWithAnAttemptAtItsTimeLimit(t *testing.T) {
	r := retrypolicy.Retrier{Policy: retrypolicy.MaxElapsed{Limit: 5 * s, Shorten: true,
		Policy: compat.Failsafe{Retries: 4, Delay: 2 * s}}}
	calls, took, err := policytest.Retries(t, r, policytest.Lost)
	// without the millisecond it would never end in fake time
	if calls != 5 || took != 5*s+time.Millisecond || err == nil {
		t.Errorf("%d calls in %v, %v; want 5 in 5.001s (0, 2, 4, 5, 5.001)", calls, took, err)
	}
}

func TestFetchRetryAndPresetsValidate(t *testing.T) {
	for _, c := range []struct {
		policy retrypolicy.Policy
		want   string
	}{
		{compat.Truncated(), ""},
		{compat.FetchRetryDefaults(), ""},
		{compat.FetchRetry{Retries: -1}, "FetchRetry.Retries"},
		{compat.FetchRetry{Delay: -1}, "FetchRetry.Delay is negative"},
		{compat.FetchRetry{}, ""},
		{compat.FetchRetry{Retries: 1}, "FetchRetry.Delay is 0"},
		{compat.FetchRetry{OnFunc: func(int, error) bool { return true }}, "FetchRetry.Delay is 0"},
		{compat.FetchRetry{Retries: 1, DelayFunc: func(int, error) time.Duration { return 0 }}, ""},
		{compat.FetchRetry{On: []int{1}, OnFunc: func(int, error) bool { return true }}, "FetchRetry.On and OnFunc"},
		{compat.AzureIoTOperations(), ""},
		{compat.Cenkalti(), ""},
		{compat.CenkaltiV4(), ""},
		{compat.AzureNode(), ""},
		{compat.AzureNodeDocumented(), ""},
	} {
		policytest.CheckInvalid(t, c.policy, c.want)
	}
}

// Shorthands of the tables.
const (
	ms = time.Millisecond
	s  = time.Second
)

// throttled has the constants for a service that asks for fewer requests.
var throttled = retrypolicy.ExponentialBackoffWithJitter{
	C: 5 * time.Second, Cmin: 10 * time.Second, Cmax: 60 * time.Second, Jd: 0.5, Ju: 0.25,
}

func checkDelay(t *testing.T, p retrypolicy.Policy, x int, draw uint64, want time.Duration) {
	t.Helper()
	got := p.Decide(retrypolicy.Attempt{Retry: x, Rand: draw})
	if got != (retrypolicy.Decision{Retry: true, Delay: want}) {
		t.Errorf("F(%d) with draw %#x = %+v (%d ns), want a retry after %v (%d ns)", x, draw, got, got.Delay, want, want)
	}
}
