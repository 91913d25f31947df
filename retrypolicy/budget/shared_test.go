package budget_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// wrapper is a budget, with what it counts at Epoch+30 s.
type wrapper struct {
	wrap   func(retrypolicy.Policy) retrypolicy.Policy
	counts func() string
}

// wrappers returns a new budget of each type.
func wrappers() map[string]wrapper {
	late := policytest.At(30 * time.Second).Now
	throttle, share := policytest.Must(budget.NewThrottle(nil)), policytest.Must(budget.NewRetryBudget(nil))
	crowd, ratio := policytest.Must(budget.NewConcurrencyBudget(nil)), policytest.Must(budget.NewRetryThrottle(10, 0.1))
	breaker := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 1}))
	bucket := policytest.Must(budget.NewTokenBucket(100, 0, 0))
	quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: bucket, First: 5, Late: true}))
	adaptive := budget.NewAdaptive()
	return map[string]wrapper{
		"Throttle":          {throttle.Wrap, func() string { return fmt.Sprint(throttle.Counts(late)) }},
		"RetryBudget":       {share.Wrap, func() string { return fmt.Sprint(share.Counts(late)) }},
		"ConcurrencyBudget": {crowd.Wrap, func() string { return fmt.Sprint(crowd.Counts()) }},
		"RetryThrottle":     {ratio.Wrap, func() string { return fmt.Sprint(ratio.Tokens()) }},
		"Breaker":           {breaker.Wrap, func() string { return fmt.Sprint(breaker.Status(late)) }},
		"Quota":             {quota.Wrap, func() string { return fmt.Sprint(bucket.Tokens(late)) }},
		"Adaptive":          {adaptive.Wrap, func() string { return fmt.Sprint(adaptive.Rate()) }},
	}
}

// An attempt that an inner gate refuses or delays does not count.
func TestABudgetDoesNotCountAnAttemptThatAnInnerGateHolds(t *testing.T) {
	for _, d := range []retrypolicy.Decision{{Reason: retrypolicy.ReasonRejected}, {Retry: true, Delay: time.Second}} {
		for name, b := range wrappers() {
			inner := &closed{d: d}
			p := newCrowd(b.wrap(inner))
			if name == "Breaker" { // half-open
				p.Observe(policytest.As(policytest.At(0), transport.Network))
			}
			before := b.counts()
			for i := range 5 {
				a := policytest.Retried(policytest.At(30*time.Second), i%2)
				if got := p.Admit(a); got != d || inner.asked != i+1 {
					t.Errorf("%s: %+v, want the inner gate's %+v; asked %d times", name, got, d, inner.asked)
				}
			}
			if after := b.counts(); after != before {
				t.Errorf("%s: counts %s, before %s", name, after, before)
			}
		}
	}
}

func TestABudgetPassesOn(t *testing.T) {
	for name, b := range wrappers() {
		inner := &closed{d: retrypolicy.Decision{Retry: true}}
		p := b.wrap(inner)
		series := policytest.Series(p)
		if d := series.Admit(policytest.At(0)); d != inner.d {
			t.Errorf("%s: Admit %+v", name, d)
		}
		lost := policytest.As(policytest.At(0), transport.NotFound)
		series.Report(retrypolicy.VerdictAgain, lost)
		want := retrypolicy.Decision{Retry: true, Delay: 30 * time.Second}
		if d := series.Decide(policytest.Retried(lost, 1)); d != want {
			t.Errorf("%s: Decide %+v", name, d)
		}
		if d := p.Decide(policytest.Retried(lost, 1)); d != want {
			t.Errorf("%s: Decide without a series %+v", name, d)
		}
		none := policytest.Series(b.wrap(retrypolicy.NoRetry{}))
		if d := none.Decide(policytest.Retried(lost, 1)); d != (retrypolicy.Decision{}) {
			t.Errorf("%s around NoRetry: %+v", name, d)
		}
		if inner.asked != 1 || inner.got != 1 {
			t.Errorf("%s: inner was asked %d times and told %d times", name, inner.asked, inner.got)
		}
		policytest.CheckInvalid(t, p, "")
		policytest.CheckInvalid(t, b.wrap(nil), "the policy given to "+name+".Wrap is nil")
		policytest.CheckInvalid(t, b.wrap(retrypolicy.Fixed{Delay: -1}), "Fixed.Delay")
	}
	for name, p := range map[string]retrypolicy.Policy{
		"Throttle": (*budget.Throttle)(nil).Wrap(always), "RetryBudget": (*budget.RetryBudget)(nil).Wrap(always),
		"ConcurrencyBudget": (*budget.ConcurrencyBudget)(nil).Wrap(always), "Quota": (*budget.Quota)(nil).Wrap(always),
		"RetryThrottle": (*budget.RetryThrottle)(nil).Wrap(always), "Breaker": (*budget.Breaker)(nil).Wrap(always),
		"Adaptive": (*budget.Adaptive)(nil).Wrap(always),
	} {
		policytest.CheckInvalid(t, p, "New"+name)
	}
}

// refusal returns the error of a constructor.
func refusal[T any](_ T, err error) error { return err }

func TestConstructorsRefuseBadOptions(t *testing.T) {
	type (
		breaker  = budget.BreakerOptions
		throttle = budget.ThrottleOptions
		share    = budget.RetryBudgetOptions
		crowd    = budget.ConcurrencyBudgetOptions
		quota    = budget.QuotaOptions
	)
	nan, inf := math.NaN(), math.Inf(1)
	beyond := int64(1) << 31 // negative where an int has 32 bits
	for _, c := range []struct {
		o    any
		want string
	}{
		{breaker{}, ""},
		{breaker{Failures: 1, Window: time.Minute, Share: 1, Cooldown: 1, Growth: 1, Probes: 1, Successes: 1}, ""},
		{breaker{Cooldown: math.MaxInt64}, ""},
		{breaker{Failures: -1}, "BreakerOptions.Failures"},
		{breaker{Window: -1}, "BreakerOptions.Window"},
		{breaker{Window: 1}, "BreakerOptions.Window"},
		{breaker{Window: time.Minute, Share: 1.1}, "BreakerOptions.Share"},
		{breaker{Window: time.Minute, Share: nan}, "BreakerOptions.Share"},
		{breaker{Share: 0.5}, "BreakerOptions.Share needs Window"},
		{breaker{Cooldown: -1}, "BreakerOptions.Cooldown"},
		{breaker{Growth: 0.5}, "BreakerOptions.Growth"},
		{breaker{Growth: nan}, "BreakerOptions.Growth"},
		{breaker{Growth: inf}, "BreakerOptions.Growth"},
		{breaker{Probes: -1}, "BreakerOptions.Probes"},
		{breaker{Successes: -1}, "BreakerOptions.Successes"},
		{throttle{}, ""},
		{throttle{K: 1, Window: 20 * time.Millisecond, Ceiling: 1, MinRequests: 5}, ""},
		{throttle{K: 0.99}, "ThrottleOptions.K"},
		{throttle{K: nan}, "ThrottleOptions.K"},
		{throttle{K: inf}, "ThrottleOptions.K"},
		{throttle{Window: time.Millisecond}, "ThrottleOptions.Window"},
		{throttle{Window: -1}, "ThrottleOptions.Window"},
		{throttle{Ceiling: 1.1}, "ThrottleOptions.Ceiling"},
		{throttle{Ceiling: nan}, "ThrottleOptions.Ceiling"},
		{throttle{MinRequests: -1}, "ThrottleOptions.MinRequests"},
		{share{}, ""},
		{share{Share: -0.1}, "RetryBudgetOptions.Share"},
		{share{Share: 1e-7}, "RetryBudgetOptions.Share"},
		{share{Share: nan}, "RetryBudgetOptions.Share"},
		{share{Share: 101}, "RetryBudgetOptions.Share"},
		{share{Window: 1}, "RetryBudgetOptions.Window"},
		{share{MinRetries: -1}, "RetryBudgetOptions.MinRetries"},
		{crowd{}, ""},
		{crowd{Share: 1, MinRetries: math.MaxInt32}, ""},
		{crowd{Share: 1.01}, "ConcurrencyBudgetOptions.Share"},
		{crowd{Share: -1}, "ConcurrencyBudgetOptions.Share"},
		{crowd{Share: nan}, "ConcurrencyBudgetOptions.Share"},
		{crowd{MinRetries: -1}, "ConcurrencyBudgetOptions.MinRetries"},
		{quota{}, ""},
		{quota{Retry: 65536}, "QuotaOptions.Retry"},
		{quota{First: -1}, "QuotaOptions.First"},
		{quota{First: 65536}, "QuotaOptions.First"},
		{quota{Success: 65536}, "QuotaOptions.Success"},
		{quota{MinRefund: -1}, "QuotaOptions.MinRefund"},
		{quota{MinRefund: 65536}, "QuotaOptions.MinRefund"},
		{quota{ExtraRefund: -1}, "QuotaOptions.ExtraRefund"},
		{quota{Wait: true}, "QuotaOptions.Wait needs"},
		{quota{Costs: []budget.Cost{{Tokens: 1}}}, "without Kinds"},
		{quota{Costs: []budget.Cost{{Kinds: 1, Tokens: -1}}}, "QuotaOptions.Costs.Tokens"},
		{[3]int{-1, 0, 0}, "TokenBucket size"},
		{[3]int{int(beyond), 0, 0}, "TokenBucket size"},
		{[3]int{500, -1, 0}, "TokenBucket spent"},
		{[3]int{5, 6, 0}, "TokenBucket spent"},
		{[3]int{500, 0, -1}, "TokenBucket refill"},
		{[3]int{500, 0, 1_000_001}, "TokenBucket refill"},
		{[2]float64{1, 0.001}, ""},
		{[2]float64{1000, 1000}, ""},
		{[2]float64{0, 0.1}, "RetryThrottle maxTokens"},
		{[2]float64{1001, 0.1}, "RetryThrottle maxTokens"},
		{[2]float64{-1, 0.1}, "RetryThrottle maxTokens"},
		{[2]float64{10, 0}, "RetryThrottle ratio"},
		{[2]float64{10, 0.0009}, "RetryThrottle ratio"},
		{[2]float64{10, -1}, "RetryThrottle ratio"},
		{[2]float64{10, nan}, "RetryThrottle ratio"},
		{[2]float64{10, inf}, "RetryThrottle ratio"},
	} {
		var err error
		switch o := c.o.(type) {
		case breaker:
			err = refusal(budget.NewBreaker(&o))
		case throttle:
			err = refusal(budget.NewThrottle(&o))
		case share:
			err = refusal(budget.NewRetryBudget(&o))
		case crowd:
			err = refusal(budget.NewConcurrencyBudget(&o))
		case quota:
			err = refusal(budget.NewQuota(&o))
		case [3]int:
			err = refusal(budget.NewTokenBucket(o[0], o[1], o[2]))
		case [2]float64:
			err = refusal(budget.NewRetryThrottle(int(o[0]), o[1]))
		}
		policytest.CheckRefusal(t, err, c.want)
	}
}
