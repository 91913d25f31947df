package retrypolicy_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestFuncGetsCountAndErrorAndItsAnswerIsTaken(t *testing.T) {
	lost := &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection}
	var gotRetry int
	var gotErr error
	f := retrypolicy.Func(func(retry int, last error) (bool, time.Duration) {
		gotRetry, gotErr = retry, last
		return retry < 3, time.Duration(retry) * time.Second
	})
	for _, c := range []struct {
		retry int
		want  retrypolicy.Decision
	}{
		{1, retrypolicy.Decision{Retry: true, Delay: time.Second}},
		{2, retrypolicy.Decision{Retry: true, Delay: 2 * time.Second}},
		{3, retrypolicy.Decision{Retry: false, Delay: 3 * time.Second}},
	} {
		got := f.Decide(retrypolicy.Attempt{Retry: c.retry, Err: lost})
		if got != c.want {
			t.Errorf("retry %d: %+v, want %+v", c.retry, got, c.want)
		}
		if gotRetry != c.retry || !errors.Is(gotErr, lost) {
			t.Errorf("the function got (%d, %v), want (%d, %v)", gotRetry, gotErr, c.retry, lost)
		}
	}
}

func TestNoRetryNeverRetries(t *testing.T) {
	for _, x := range []int{-1, 0, 1, 11, 1 << 30} {
		got := retrypolicy.NoRetry{}.Decide(retrypolicy.Attempt{Retry: x, Kind: transport.Network, Err: transport.Network,
			Rand: policytest.DrawLast})
		if got != (retrypolicy.Decision{}) {
			t.Errorf("retry %d: %+v, want the zero Decision", x, got)
		}
	}
}

// stateless has no method Validate.
type stateless struct{}

func (stateless) Decide(retrypolicy.Attempt) retrypolicy.Decision { return retrypolicy.Decision{} }

// forgetful shows the policy inside but does not begin its series.
type forgetful struct{ retrypolicy.Policy }

func (f forgetful) Unwrap() retrypolicy.Policy { return f.Policy }

// mindful is forgetful with the method that it lacks.
type mindful struct{ forgetful }

func (mindful) decide(inner retrypolicy.Policy, a retrypolicy.Attempt) retrypolicy.Decision {
	return inner.Decide(a)
}

func (m mindful) Begin(s retrypolicy.Start) retrypolicy.Series {
	return retrypolicy.Around(m, m.Policy, s, mindful.decide)
}

// pointed is mindful behind a pointer.
type pointed struct{ policy retrypolicy.Policy }

func (p *pointed) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return p.decide(p.policy, a) }
func (p *pointed) Unwrap() retrypolicy.Policy                        { return p.policy }
func (p *pointed) decide(inner retrypolicy.Policy, a retrypolicy.Attempt) retrypolicy.Decision {
	return inner.Decide(a)
}

func (p *pointed) Begin(s retrypolicy.Start) retrypolicy.Series {
	return retrypolicy.Around(p, p.policy, s, (*pointed).decide)
}

// A wrapper that all operations share by a pointer keeps the memory of each apart.
func TestAWrapperBehindAPointerSharesNoSeries(t *testing.T) {
	bucket := policytest.Must(budget.NewTokenBucket(100, 0, 0))
	quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: bucket}))
	p := &pointed{quota.Wrap(retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Immediately{}})}
	down := errors.New("down")
	for n := range 4 {
		require.ErrorIs(t, retrypolicy.Do(t.Context(), p, func(context.Context) error { return down }),
			retrypolicy.ReasonOutOfAttempts)
		require.Equal(t, 100-10*(n+1), bucket.Tokens(time.Now()))
	}
}

func TestValidateRefusesAWrapperThatDisablesABudgetInside(t *testing.T) {
	fixed := retrypolicy.Fixed{Delay: time.Second}
	breaker := policytest.Must(budget.NewBreaker(nil)).Wrap(fixed)
	limited := retrypolicy.MaxAttempts{Total: 2, Policy: breaker}
	const want = "policy has no Begin"
	for _, c := range []struct {
		name   string
		policy retrypolicy.Policy
		want   string
	}{
		{"around a budget", forgetful{breaker}, want},
		{"around a limit around a budget", forgetful{limited}, want},
		{"two of them", forgetful{forgetful{breaker}}, "has no Begin"},
		{"inside a limit", retrypolicy.MaxAttempts{Total: 2, Policy: forgetful{breaker}}, "MaxAttempts.Policy has no Begin"},
		{"around nothing", forgetful{}, "is nil"},
		{"around bad parameters", forgetful{retrypolicy.Fixed{Delay: -1}}, "Delay"},
		{"around a limit without memory", forgetful{retrypolicy.MaxAttempts{Total: 2, Policy: fixed}}, ""},
		{"with Begin", mindful{forgetful{breaker}}, ""},
		{"with Begin around bad parameters", mindful{forgetful{retrypolicy.Fixed{Delay: -1}}}, "Delay"},
	} {
		t.Run(c.name, func(t *testing.T) { policytest.CheckInvalid(t, c.policy, c.want) })
	}
}

func TestValidate(t *testing.T) {
	bad := retrypolicy.ExponentialBackoffWithJitter{C: -1}
	for _, c := range []struct {
		name   string
		policy retrypolicy.Policy
		want   string
	}{
		{"nil", nil, "policy is nil"},
		{"nil Func", retrypolicy.Func(nil), "Func is nil"},
		{"Func", retrypolicy.Func(func(int, error) (bool, time.Duration) { return false, 0 }), ""},
		{"NoRetry", retrypolicy.NoRetry{}, ""},
		{"a policy of the user's without Validate", stateless{}, ""},
		{"good parameters", retrypolicy.ExponentialBackoffWithJitter{}, ""},
		{"bad parameters", bad, "C is negative"},
		{"bad parameters behind a pointer", &bad, "C is negative"},
	} {
		t.Run(c.name, func(t *testing.T) { policytest.CheckInvalid(t, c.policy, c.want) })
	}
}

// unreadable is a policy whose Validate returns an error whose methods panic.
type unreadable struct{ retrypolicy.NoRetry }

func (unreadable) Validate() error { return (*os.PathError)(nil) }

func TestValidateReturnsAnErrorThatCanBeRead(t *testing.T) {
	err := retrypolicy.Validate(unreadable{})
	require.EqualError(t, err, "an error whose Error method panics")
	require.NotErrorIs(t, err, transport.Invalid)
}

// A nil pointer is a Policy, and calls methods of values through it.
func TestANilPointerIsAnInvalidPolicy(t *testing.T) {
	var none *retrypolicy.ExponentialBackoffWithJitter
	for _, p := range []retrypolicy.Policy{none, retrypolicy.MaxAttempts{Total: 3, Policy: none}} {
		for _, err := range []error{retrypolicy.Validate(p), retrypolicy.Do(t.Context(), p, nil)} {
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, "nil *ExponentialBackoffWithJitter")
		}
	}
}
