package budget_test

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// Validate refuses invalid nesting through every wrapper.
func TestValidateRefusesSharedStateTwice(t *testing.T) {
	curve := retrypolicy.Policy(retrypolicy.Fixed{Delay: time.Second})
	kinds := retrypolicy.Kinds(transport.Throttled)
	rules := func(one, other retrypolicy.Policy) retrypolicy.Policy {
		return retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: kinds, Policy: one}}, Default: other}
	}
	quota, quota2 := policytest.NewQuota(t, nil), policytest.NewQuota(t, nil)
	breaker, breaker2 := policytest.NewBreaker(t, nil), policytest.NewBreaker(t, nil)
	throttle, crowd, share, ratio := policytest.NewThrottle(t, nil), newConcurrencyBudget(t, nil), newRetryBudget(t, nil),
		policytest.NewRetryThrottle(t, 10, 0.1)
	adaptive, err := budget.NewAdaptive(nil)
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := budget.NewPerKey(2, func(string) retrypolicy.Policy { return quota.Wrap(curve) })
	if err != nil {
		t.Fatal(err)
	}
	around := func(p retrypolicy.Policy) retrypolicy.Policy { // all of them
		return adaptive.Wrap(breaker.Wrap(throttle.Wrap(crowd.Wrap(ratio.Wrap(share.Wrap(
			retrypolicy.MaxElapsed{Limit: time.Hour, Policy: retrypolicy.MaxAttempts{Total: 9,
				Policy: retrypolicy.SafeOnly{Policy: retrypolicy.RetryAfter{Policy: p}}}},
		))))))
	}
	for _, c := range []struct {
		name   string
		policy retrypolicy.Policy
		want   string
	}{
		{"one of each", quota.Wrap(around(curve)), ""},
		{"a quota in one rule", rules(quota.Wrap(curve), curve), ""},
		{"a key's quota", keyed, ""},
		{"two breakers", breaker.Wrap(breaker2.Wrap(curve)), ""},
		{"a quota in itself", quota.Wrap(quota.Wrap(curve)), "Quota: there are two"},
		{"two quotas", quota.Wrap(quota2.Wrap(curve)), "Quota: there are two"},
		{"a quota deep inside another", quota.Wrap(around(quota2.Wrap(curve))), "Quota: there are two"},
		{"a quota in two rules", rules(quota.Wrap(curve), quota.Wrap(curve)), "Quota: there are two"},
		{"two quotas in two rules", rules(quota.Wrap(curve), quota2.Wrap(curve)), "Quota: there are two"},
		{"two quotas inside a limit", retrypolicy.MaxAttempts{Total: 3, Policy: rules(quota.Wrap(curve), quota.Wrap(curve))},
			"Quota: there are two"},
		{"a quota around that of a key", quota2.Wrap(keyed), "Quota: there are two"},
		{"a breaker in two rules", rules(breaker.Wrap(curve), breaker.Wrap(curve)), "in one policy twice"},
		{"a throttle in itself", throttle.Wrap(breaker.Wrap(throttle.Wrap(curve))), "in one policy twice"},
		{"a budget in itself", share.Wrap(share.Wrap(curve)), "in one policy twice"},
		{"a concurrency budget in two rules", rules(crowd.Wrap(curve), crowd.Wrap(curve)), "in one policy twice"},
		{"a retry throttle in itself", ratio.Wrap(ratio.Wrap(curve)), "in one policy twice"},
		{"a rate limiter in itself", adaptive.Wrap(adaptive.Wrap(curve)), "in one policy twice"},
		{"ByKind in a rule", rules(rules(curve, curve), curve), "ByKind.Rules.Policy holds another ByKind"},
		{"ByKind as Default", rules(curve, compat.Truncated()), "ByKind.Default holds another ByKind"},
		{"ByKind deep inside ByKind", rules(curve, around(rules(curve, curve))), "ByKind.Default holds another ByKind"},
	} {
		err := retrypolicy.Validate(c.policy)
		if policytest.CheckRefusal(t, err, c.want); t.Failed() {
			t.Fatal(c.name)
		}
	}
}

// A quota charges for the retries that are made, no matter which policy refuses the others or why
// the caller gives up.
func TestAQuotaChargesForRetriesThatAreMade(t *testing.T) {
	again := classify.Info{Verdict: classify.VerdictAgain, Kind: transport.Unavailable}
	breaker := policytest.NewBreaker(t, &budget.BreakerOptions{Failures: 2})
	share := newRetryBudget(t, &budget.RetryBudgetOptions{MinRetries: 1})
	for _, c := range []struct {
		name   string
		policy func(q *budget.Quota) retrypolicy.Policy
		run    func(s *retrypolicy.Series)
		want   int
	}{
		{"given up during the delay", func(q *budget.Quota) retrypolicy.Policy {
			return q.Wrap(retrypolicy.Fixed{Delay: time.Second})
		}, func(s *retrypolicy.Series) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			s.Abandon(policytest.Epoch, nil)
		}, 0},
		{"given up during the retry", func(q *budget.Quota) retrypolicy.Policy {
			return q.Wrap(retrypolicy.Fixed{Delay: time.Second})
		}, func(s *retrypolicy.Series) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			s.Admit(policytest.Epoch, 0)
			s.Abandon(policytest.Epoch, nil)
		}, 5},
		{"refused by a gate after the delay", func(q *budget.Quota) retrypolicy.Policy {
			return q.Wrap(breaker.Wrap(retrypolicy.Fixed{Delay: time.Second}))
		}, func(s *retrypolicy.Series) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			breaker.Wrap(retrypolicy.NoRetry{}).(retrypolicy.Observer).Observe(retrypolicy.Attempt{Now: policytest.Epoch,
				Err:  transport.Unavailable,
				Kind: transport.Unavailable, Count: 9})
			if d, _ := s.Admit(policytest.Epoch.Add(time.Second), 0); d.Retry {
				t.Error("the breaker let a try in")
			}
		}, 0},
		{"refused by a limit around it", func(q *budget.Quota) retrypolicy.Policy {
			return retrypolicy.MaxElapsed{Limit: time.Second, LookAhead: true,
				Policy: q.Wrap(retrypolicy.Fixed{Delay: time.Minute})}
		}, func(s *retrypolicy.Series) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
		}, 0},
		{"refused by a budget around it", func(q *budget.Quota) retrypolicy.Policy {
			return share.Wrap(q.Wrap(retrypolicy.Fixed{Delay: time.Minute}))
		}, func(s *retrypolicy.Series) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable) // the only retry of the budget
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
		}, 5},
		{"given up in a rule", func(q *budget.Quota) retrypolicy.Policy {
			return retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Unavailable),
				Policy: q.Wrap(retrypolicy.Fixed{Delay: time.Minute})}}, Default: retrypolicy.NoRetry{}}
		}, func(s *retrypolicy.Series) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			s.Abandon(policytest.Epoch, nil)
		}, 0},
	} {
		b := policytest.NewBucket(t, 100, 0, 0)
		p := c.policy(policytest.NewQuota(t, &budget.QuotaOptions{Bucket: b}))
		policytest.CheckInvalid(t, p, "")
		s := retrypolicy.Begin(p, "", policytest.Epoch)
		c.run(&s)
		if missing := 100 - b.Tokens(policytest.Epoch); missing != c.want {
			t.Errorf("%s: %d tokens are missing, want %d", c.name, missing, c.want)
		}
	}
}

// A retry budget uncounts a retry that is not made.
func TestARetryBudgetTakesBackARetryThatIsNotMade(t *testing.T) {
	b := newRetryBudget(t, &budget.RetryBudgetOptions{MinRetries: 3})
	p := b.Wrap(retrypolicy.Fixed{Delay: time.Second})
	for range 9 {
		s := retrypolicy.Begin(p, "", policytest.Epoch)
		s.Admit(policytest.Epoch, 0)
		if d, err := s.Failure(policytest.Epoch, 0, classify.Info{Verdict: classify.VerdictAgain},
			transport.Unavailable); err != nil || !d.Retry {
			t.Fatal(d, err)
		}
		s.Abandon(policytest.Epoch, nil)
	}
	if requests, retries := b.Counts(policytest.Epoch); requests != 9 || retries != 0 {
		t.Errorf("%d requests, %d retries", requests, retries)
	}
}

// A negative cost means no cost.
func TestQuotaWithoutACost(t *testing.T) {
	b := policytest.NewBucket(t, 10, 1, 0)
	p := policytest.NewQuota(t, &budget.QuotaOptions{Bucket: b, Retry: -1, Success: -1,
		Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 3}}}).Wrap(policytest.Again(time.Second))
	s := retrypolicy.Begin(p, "", policytest.Epoch)
	fails(t, "free", &s, transport.Unavailable, time.Second)
	if got := b.Tokens(policytest.Epoch); got != 9 {
		t.Errorf("%d tokens after a free retry, want 9", got)
	}
	fails(t, "named", &s, transport.Throttled, time.Second)
	if got := b.Tokens(policytest.Epoch); got != 6 {
		t.Errorf("%d tokens after a retry of 3, want 6", got)
	}
	s = retrypolicy.Begin(p, "", policytest.Epoch)
	succeeds(t, "success", &s)
	if got := b.Tokens(policytest.Epoch); got != 6 {
		t.Errorf("%d tokens after a success that gives nothing back, want 6", got)
	}
}
