package budget_test

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// A budget that is nested in itself acts once, and one in two rules counts each attempt once.
func TestSharedStateTwiceCountsOnce(t *testing.T) {
	type wrap = func(retrypolicy.Policy) retrypolicy.Policy
	curve := retrypolicy.Policy(retrypolicy.Fixed{Delay: time.Second})
	rules := func(one, other retrypolicy.Policy) retrypolicy.Policy {
		return retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Throttled),
			Policy: one}},
			Default: other}
	}
	for name, nest := range map[string]func(w wrap) retrypolicy.Policy{
		"once":      func(w wrap) retrypolicy.Policy { return w(curve) },
		"in itself": func(w wrap) retrypolicy.Policy { return w(w(curve)) },
		"deep": func(w wrap) retrypolicy.Policy {
			return w(retrypolicy.MaxElapsed{Limit: time.Hour, Policy: policytest.Must(budget.NewThrottle(nil)).Wrap(
				retrypolicy.MaxAttempts{Total: 9, Policy: w(curve)})})
		},
		"in two rules": func(w wrap) retrypolicy.Policy { return rules(w(curve), w(curve)) },
		"around both":  func(w wrap) retrypolicy.Policy { return w(rules(w(curve), w(curve))) },
	} {
		bucket := policytest.Must(budget.NewTokenBucket(100, 0, 0))
		quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: bucket}))
		breaker := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 3}))
		crowd, share := policytest.Must(budget.NewConcurrencyBudget(nil)),
			policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{MinRetries: 9}))
		p := nest(func(p retrypolicy.Policy) retrypolicy.Policy {
			return quota.Wrap(breaker.Wrap(crowd.Wrap(share.Wrap(p))))
		})
		policytest.CheckInvalid(t, p, "")
		s := policytest.Series(p)
		for i, kind := range []transport.Kind{transport.Throttled, transport.Network} {
			a := policytest.Retried(policytest.As(policytest.At(0), kind), i)
			a.Rand = policytest.DrawLast
			if d := s.Admit(a); !d.Retry {
				t.Errorf("%s: attempt %d: %v", name, i, d)
			}
			if all, _ := crowd.Counts(); all != 1 {
				t.Errorf("%s: %d in flight", name, all)
			}
			s.Report(retrypolicy.VerdictAgain, a)
			if d := s.Decide(policytest.Retried(a, i+1)); !d.Retry {
				t.Errorf("%s: retry %d: %v", name, i+1, d)
			}
		}
		requests, retries := share.Counts(policytest.Epoch)
		if left := bucket.Tokens(policytest.Epoch); left != 90 || requests != 1 || retries != 2 ||
			breaker.Status(policytest.Epoch).Failures != 2 {
			t.Errorf("%s: %d tokens left, %d requests, %d retries, %+v", name, left, requests, retries,
				breaker.Status(policytest.Epoch))
		}
		last := policytest.Retried(policytest.At(0), 2)
		last.Rand = policytest.DrawLast // the Throttle lets it in
		if d := s.Admit(last); !d.Retry {
			t.Errorf("%s: the last attempt: %v", name, d)
		}
		s.Report(retrypolicy.VerdictSucceed, last)
		s.End()
		if left := bucket.Tokens(policytest.Epoch); left != 95 {
			t.Errorf("%s: %d tokens left at the end, want 95", name, left)
		}
	}
}

// Two quotas charge each for itself.
func TestTwoQuotasInOnePolicy(t *testing.T) {
	one, other := policytest.Must(budget.NewTokenBucket(100, 0, 0)), policytest.Must(budget.NewTokenBucket(100, 0, 0))
	p := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: one, Retry: 3})).Wrap(
		policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: other, Retry: 7})).Wrap(policytest.Again(0)))
	s := retrypolicy.Begin(p, "", policytest.Epoch)
	fails(t, "first", &s, transport.Network, 0)
	if a, b := one.Tokens(policytest.Epoch), other.Tokens(policytest.Epoch); a != 97 || b != 93 {
		t.Errorf("%d and %d tokens left", a, b)
	}
	succeeds(t, "second", &s)
	if a, b := one.Tokens(policytest.Epoch), other.Tokens(policytest.Epoch); a != 100 || b != 100 {
		t.Errorf("%d and %d tokens left", a, b)
	}
}

// A quota charges for the retries that are made, no matter which policy refuses the others or why
// the caller gives up.
func TestAQuotaChargesForRetriesThatAreMade(t *testing.T) {
	again := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Unavailable}
	breaker := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 2}))
	share := policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{MinRetries: 1}))
	for _, c := range []struct {
		name   string
		policy func(q *budget.Quota) retrypolicy.Policy
		run    func(s *retrypolicy.Operation)
		want   int
	}{
		{"given up during the delay", func(q *budget.Quota) retrypolicy.Policy {
			return q.Wrap(retrypolicy.Fixed{Delay: time.Second})
		}, func(s *retrypolicy.Operation) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			s.End()
		}, 0},
		{"given up during the retry", func(q *budget.Quota) retrypolicy.Policy {
			return q.Wrap(retrypolicy.Fixed{Delay: time.Second})
		}, func(s *retrypolicy.Operation) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			s.Admit(policytest.Epoch, 0)
			s.End()
		}, 5},
		{"refused by a gate after the delay", func(q *budget.Quota) retrypolicy.Policy {
			return q.Wrap(breaker.Wrap(retrypolicy.Fixed{Delay: time.Second}))
		}, func(s *retrypolicy.Operation) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			others := newCrowd(breaker.Wrap(retrypolicy.NoRetry{}))
			others.Observe(policytest.As(retrypolicy.Attempt{Now: policytest.Epoch}, transport.Unavailable))
			if d, _ := s.Admit(policytest.Epoch.Add(time.Second), 0); d.Retry {
				t.Error("the breaker let a try in")
			}
		}, 0},
		{"refused by a limit around it", func(q *budget.Quota) retrypolicy.Policy {
			return retrypolicy.MaxElapsed{Limit: time.Second, LookAhead: true,
				Policy: q.Wrap(retrypolicy.Fixed{Delay: time.Minute})}
		}, func(s *retrypolicy.Operation) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
		}, 0},
		{"refused by a budget around it", func(q *budget.Quota) retrypolicy.Policy {
			return share.Wrap(q.Wrap(retrypolicy.Fixed{Delay: time.Minute}))
		}, func(s *retrypolicy.Operation) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable) // the only retry of the budget
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
		}, 5},
		{"given up in a rule", func(q *budget.Quota) retrypolicy.Policy {
			return retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Unavailable),
				Policy: q.Wrap(retrypolicy.Fixed{Delay: time.Minute})}}, Default: retrypolicy.NoRetry{}}
		}, func(s *retrypolicy.Operation) {
			s.Admit(policytest.Epoch, 0)
			s.Failure(policytest.Epoch, 0, again, transport.Unavailable)
			s.End()
		}, 0},
	} {
		b := policytest.Must(budget.NewTokenBucket(100, 0, 0))
		p := c.policy(policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b})))
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
	b := policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{MinRetries: 3}))
	p := newCrowd(b.Wrap(retrypolicy.Fixed{Delay: time.Second}))
	for range 9 {
		s := retrypolicy.Begin(p, "", policytest.Epoch)
		s.Admit(policytest.Epoch, 0)
		if d, err := s.Failure(policytest.Epoch, 0, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain},
			transport.Unavailable); err != nil || !d.Retry {
			t.Fatal(d, err)
		}
		s.End()
	}
	if requests, retries := b.Counts(policytest.Epoch); requests != 9 || retries != 0 {
		t.Errorf("%d requests, %d retries", requests, retries)
	}
}

// A negative cost means no cost.
func TestQuotaWithoutACost(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(10, 1, 0))
	quota := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, Retry: -1, Success: -1,
		Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 3}}}))
	p := quota.Wrap(policytest.Again(time.Second))
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
