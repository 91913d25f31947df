package budget_test

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// grants returns the number of consecutive retries that p allows at a, at most 1000.
func grants(p retrypolicy.Policy, a retrypolicy.Attempt) int {
	for n := range 1000 {
		if d := p.Decide(policytest.Retried(policytest.As(a, transport.Unavailable), 1)); !d.Retry {
			return n
		}
	}
	return 1000
}

func TestRetryBudgetAllowsAShareOfTheRequests(t *testing.T) {
	for _, c := range []struct {
		o        *budget.RetryBudgetOptions
		requests int
		want     int
	}{
		{nil, 0, 0},
		{nil, 1, 1},  // 0 < 0.1
		{nil, 10, 1}, // 1 is not below 1
		{nil, 11, 2}, // 1 < 1.1
		{nil, 30, 3}, // in floating point 0.1*30 may slightly exceed 3
		{nil, 1000, 100},
		{&budget.RetryBudgetOptions{Share: 0.3}, 10, 3},
		{&budget.RetryBudgetOptions{Share: 2}, 10, 20},
		{&budget.RetryBudgetOptions{Share: 0.000249}, 1_000_000, 249}, // in floating point less than 249 millionths
		{&budget.RetryBudgetOptions{MinRetries: 5}, 0, 5},
		{&budget.RetryBudgetOptions{MinRetries: 5}, 1000, 100},
	} {
		b := policytest.Must(budget.NewRetryBudget(c.o))
		p := newCrowd(b.Wrap(always))
		for range c.requests {
			if !p.LetsIn(policytest.At(0)) {
				t.Fatal("a first try was refused")
			}
		}
		if got := grants(p, policytest.At(0)); got != c.want {
			t.Errorf("%+v, %d requests: %d retries, want %d", c.o, c.requests, got, c.want)
		}
		for range c.want { // admitted retries are not requests
			p.LetsIn(policytest.Retried(policytest.At(0), 1))
		}
		if requests, retries := b.Counts(policytest.Epoch); requests != c.requests || retries != c.want {
			t.Errorf("counts %d, %d, want %d, %d", requests, retries, c.requests, c.want)
		}
	}
}

func TestRetryBudgetRefusalCarriesTheDelay(t *testing.T) {
	p := newCrowd(policytest.Must(budget.NewRetryBudget(nil)).Wrap(retrypolicy.Fixed{Delay: 3 * time.Second}))
	got := p.Decide(policytest.Retried(policytest.At(0), 1))
	if want := (retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota, Delay: 3 * time.Second}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRetryBudgetCountsNoRetryThatIsNotWanted(t *testing.T) {
	b := policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{MinRetries: 5}))
	b.Wrap(retrypolicy.NoRetry{}).Decide(policytest.Retried(policytest.At(0), 1))
	if _, n := b.Counts(policytest.Epoch); n != 0 {
		t.Errorf("%d retries, want none", n)
	}
}

func TestRetryBudgetSlides(t *testing.T) {
	p := newCrowd(policytest.Must(budget.NewRetryBudget(nil)).Wrap(always))
	for range 10 {
		p.LetsIn(policytest.At(0))
	}
	if n := grants(p, policytest.At(0)); n != 1 {
		t.Fatalf("%d retries, want 1", n)
	}
	for range 10 {
		p.LetsIn(policytest.At(time.Minute))
	}
	if n := grants(p, policytest.At(time.Minute)); n != 1 {
		t.Errorf("after 20 requests: %d retries more, want 1", n)
	}
	if n := grants(p, policytest.At(2*time.Minute)); n != 0 { // 10 requests and 1 retry are left
		t.Errorf("%d retries more, want 0", n)
	}
	for range 10 {
		p.LetsIn(policytest.At(2 * time.Minute))
	}
	if n := grants(p, policytest.At(2*time.Minute)); n != 1 {
		t.Errorf("%d retries more, want 1", n)
	}
}

// A call is active from its first attempt to its end, including its waits for retries.
func TestConcurrencyBudgetCountsWaitingCalls(t *testing.T) {
	// How many of the calls that fail at the same time are admitted for a retry: measured with
	// failsafe-go.
	for _, c := range []struct{ calls, want int }{{1, 1}, {3, 3}, {5, 3}, {20, 6}, {50, 13}} {
		b := policytest.Must(budget.NewConcurrencyBudget(nil))
		p := newCrowd(b.Wrap(policytest.Again(time.Second)))
		calls := make([]retrypolicy.Operation, c.calls)
		for i := range calls {
			calls[i] = retrypolicy.Begin(p, "", policytest.Epoch)
			admit(t, &calls[i], true)
		}
		for i := range calls {
			if _, err := calls[i].Failure(policytest.Epoch, 0, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
				Kind: transport.Network},
				policytest.Lost); err != nil {
				t.Fatal(err)
			}
		}
		let := 0
		for i := range calls {
			if admit(t, &calls[i], false) {
				let++
			}
		}
		if let != c.want {
			t.Errorf("%d calls fail together: %d retries are let in, want %d", c.calls, let, c.want)
		}
		for i := range calls {
			calls[i].End()
		}
		if all, retries := b.Counts(); all != 0 || retries != 0 {
			t.Errorf("%d calls, at the end: %d in flight, %d retries", c.calls, all, retries)
		}
		// Ended calls do not count: after all this, exactly three retries are admitted.
		for i := range 4 {
			if got := p.LetsIn(policytest.Retried(policytest.At(0), 1)); got != (i < 3) {
				t.Errorf("%d calls, then retry %d alone: let in %v", c.calls, i+1, got)
			}
		}
	}
}

// admit reports whether the next attempt of s may begin.
func admit(t *testing.T, s *retrypolicy.Operation, must bool) bool {
	t.Helper()
	d, err := s.Admit(policytest.Epoch, 0)
	if err != nil || must && !d.Retry {
		t.Fatal(d, err)
	}
	return d.Retry
}

func TestConcurrencyBudgetAllowsMinRetries(t *testing.T) {
	b := policytest.Must(budget.NewConcurrencyBudget(nil))
	p := newCrowd(b.Wrap(always))
	retry := policytest.Retried(policytest.At(0), 2)
	for i := range 4 {
		if got := p.LetsIn(retry); got != (i < 3) {
			t.Errorf("retry %d alone in flight: let in %v", i+1, got)
		}
	}
	for range 1000 {
		if !p.LetsIn(policytest.At(0)) {
			t.Fatal("a first try was refused")
		}
	}
	// Each retry adds a call to the 1000. Retries are admitted while k <= 0.2*(1000+k + k).
	for i := 3; i < 335; i++ {
		if got := p.LetsIn(retry); got != (i <= 333) {
			t.Fatalf("retry %d among 1000 first tries: let in %v", i+1, got)
		}
	}
	for range 1000 {
		p.Observe(policytest.As(policytest.At(0), nil))
	}
	for range 334 {
		p.Observe(policytest.As(retry, nil))
	}
	if all, retries := b.Counts(); all != 0 || retries != 0 {
		t.Errorf("at the end %d in flight, %d retries", all, retries)
	}
}

// A retry that does not begin is uncounted, unless it has left the window with time: then the
// others stay.
func TestARetryBudgetForgetsNobodyElsesRetry(t *testing.T) {
	b := policytest.Must(budget.NewRetryBudget(
		&budget.RetryBudgetOptions{Share: 1e-6, Window: time.Minute, MinRetries: 2}))
	p := b.Wrap(always)
	early := policytest.Series(p)
	early.Decide(policytest.Retried(policytest.At(0), 1))
	for range 2 {
		policytest.Series(p).Decide(policytest.Retried(policytest.At(61*time.Second), 1))
	}
	early.End()
	if d := policytest.Series(p).Decide(policytest.Retried(policytest.At(61*time.Second), 1)); d.Retry {
		t.Errorf("a third retry within a minute: %+v", d)
	}
}
