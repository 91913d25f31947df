//go:build !tinygo

package budget_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestTokenBucketTakeAndGive(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(50, 0, 0))
	for _, c := range []struct {
		take, give int
		ok         bool
		left       int
	}{
		{take: 5, ok: true, left: 45}, {give: 5, left: 50}, // botocore test_quota
		{take: 5, ok: true, left: 45}, {give: 10, left: 50}, // not above its size
		{take: 51, left: 50}, {take: 50, ok: true, left: 0}, {take: 1, left: 0}, {take: 0, ok: true, left: 0},
		{give: math.MaxInt, left: 50}, {give: -7, left: 50}, {take: 20, ok: true, left: 30}, {give: -7, left: 30},
	} {
		if c.give != 0 {
			b.Give(policytest.Epoch, c.give)
		} else if wait, ok := b.Take(policytest.Epoch, c.take); ok != c.ok || !ok && wait >= 0 {
			t.Errorf("take %d: %v, %v; without a refill a refusal is for good", c.take, wait, ok)
		}
		if got := b.Tokens(policytest.Epoch); got != c.left {
			t.Errorf("%+v: %d left", c, got)
		}
	}
}

// A clock that is set back stops the refill for at most the time that fills the bucket.
func TestTokenBucketIsRefilledAlthoughTheClockWasSetBack(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(10, 0, 5))
	b.Take(policytest.Epoch, 10)
	back := policytest.Epoch.AddDate(-1, 0, 0)
	if n := b.Tokens(back); n != 0 {
		t.Errorf("%d tokens right after the step", n)
	}
	if n := b.Tokens(back.Add(time.Second)); n != 5 {
		t.Errorf("%d tokens a second after the step, want 5", n)
	}
	if n := b.Tokens(back); n != 5 { // a slightly older time
		t.Errorf("%d tokens, want 5", n)
	}
	if n := b.Tokens(back.Add(2 * time.Second)); n != 10 {
		t.Errorf("%d tokens two seconds after the step, want 10", n)
	}
}

// smithy-kotlin loses fractions of a token at each access: with a refill of 10 a second and an
// access every 90 ms its bucket never refills.
func TestTokenBucketCarriesFractionsOver(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(100, 100, 10))
	now := policytest.Epoch
	if got := b.Tokens(now); got != 0 {
		t.Fatalf("%d at the start", got)
	}
	for range 100 {
		now = now.Add(90 * time.Millisecond)
		b.Tokens(now)
	}
	if got := b.Tokens(now); got != 90 {
		t.Errorf("%d after 9 s at 10 a second", got)
	}
	// Compare with one calculation of the sum, at random rates and times.
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for i := range 200 {
		rate := 1 + i*rng.IntN(25) // the slowest first: it takes the largest time to fill the bucket
		often, once := policytest.Must(budget.NewTokenBucket(math.MaxInt32, math.MaxInt32, rate)),
			policytest.Must(budget.NewTokenBucket(math.MaxInt32, math.MaxInt32, rate))
		often.Tokens(policytest.Epoch)
		once.Tokens(policytest.Epoch)
		at := policytest.Epoch
		for range 100 {
			at = at.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
			often.Tokens(at)
		}
		want := int(at.Sub(policytest.Epoch).Seconds() * float64(rate))
		a, o := often.Tokens(at), once.Tokens(at)
		if a != o || o < want-1 || o > want+1 {
			t.Fatalf("seed %d: rate %d, %v: %d looking often, %d once, want %d", seed, rate,
				at.Sub(policytest.Epoch), a, o,
				want)
		}
	}
}

func TestTokenBucketRefill(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(10, 10, 4))
	if wait, ok := b.Take(policytest.Epoch, 3); ok || wait != 750*time.Millisecond {
		t.Errorf("3 tokens at 4 a second: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(policytest.Sec(.6), 3); ok || wait != 150*time.Millisecond {
		t.Errorf("after 600 ms: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(policytest.Sec(.1), 3); ok || wait != 150*time.Millisecond { // an older clock reading
		t.Errorf("a clock that went back: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(policytest.Sec(.75), 3); !ok {
		t.Errorf("after the wait: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(policytest.Sec(.75), 11); ok || wait >= 0 {
		t.Errorf("more than it holds: %v, %v", wait, ok)
	}
	if got := b.Tokens(policytest.Sec(1e6)); got != 10 {
		t.Errorf("after days: %d", got)
	}
	if got := b.Tokens(policytest.Epoch.AddDate(5000, 0, 0)); got != 10 {
		t.Errorf("after 5000 years: %d", got)
	}
	// A full bucket drops the fraction: 200 ms later there is no token yet.
	if wait, ok := b.Take(policytest.Epoch.AddDate(5000, 0, 0), 10); !ok {
		t.Error(wait)
	}
	if got := b.Tokens(policytest.Epoch.AddDate(5000, 0, 0).Add(200 * time.Millisecond)); got != 0 {
		t.Errorf("%d out of nothing", got)
	}
	b = policytest.Must(budget.NewTokenBucket(10, 1, 4))
	b.Tokens(policytest.Epoch)
	if got := b.Tokens(policytest.Sec(.4)); got != 10 { // 1.6 tokens for one free place
		t.Errorf("%d", got)
	}
	b.Take(policytest.Sec(.4), 10)
	if got := b.Tokens(policytest.Sec(.6)); got != 0 {
		t.Errorf("%d of what there was no room for", got)
	}
	if wait, ok := policytest.Must(budget.NewTokenBucket(10, 10, 3)).Take(policytest.Epoch,
		1); ok || wait != 333_333_334 {
		t.Errorf("a third of a second is rounded up: %d, %v", wait, ok)
	}
}

// smithy-kotlin: costs of 2 and 3 from 10 tokens.
func TestQuotaCostsByClass(t *testing.T) {
	for _, c := range []struct {
		kind transport.Kind
		left int
	}{{transport.Throttled, 7}, {transport.Network, 7}, {transport.Timeout, 7}, {transport.Conflict, 8},
		{transport.Unavailable, 8}} {
		b := policytest.Must(budget.NewTokenBucket(10, 0, 0))
		// the first matching row counts
		costs := []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled, transport.Network, transport.Timeout),
			Tokens: 3}, {Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 9}}
		p := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, Retry: 2,
			Costs: costs})).Wrap(policytest.Again(0))
		s := policytest.Series(p)
		costs[0].Tokens = 9 // the options were copied
		d := s.Decide(retrypolicy.Attempt{Retry: 1, Kind: c.kind, Now: policytest.Epoch})
		if got := b.Tokens(policytest.Epoch); got != c.left || !d.Retry {
			t.Errorf("%v: %d left, %+v", c.kind, got, d)
		}
	}
}

// A retry that the inner policy refuses costs nothing and keeps its own reason.
func TestQuotaIsAskedLast(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(10, 0, 0))
	p := newCrowd(policytest.Must(budget.NewQuota(
		&budget.QuotaOptions{Bucket: b})).Wrap(retrypolicy.MaxAttempts{Total: 1,
		Policy: policytest.Again(0)}))
	d := p.Decide(retrypolicy.Attempt{Retry: 1, Now: policytest.Epoch})
	if d.Retry || d.Reason != retrypolicy.ReasonOutOfAttempts || b.Tokens(policytest.Epoch) != 10 {
		t.Errorf("%v, %d left", d, b.Tokens(policytest.Epoch))
	}
}

// Java: 100 tokens, cost 5. Only the cost of the last retry returns.
func TestQuotaRefund(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        budget.QuotaOptions
		spent    int
		failures []transport.Kind
		want     int // of 100, after a success
	}{
		{"one failure", budget.QuotaOptions{}, 0, []transport.Kind{transport.Unavailable}, 100},
		{"two failures", budget.QuotaOptions{}, 0, []transport.Kind{transport.Unavailable,
			transport.Unavailable}, 95},
		{"two failures, late", budget.QuotaOptions{Late: true}, 0, []transport.Kind{transport.Unavailable,
			transport.Unavailable}, 95},
		{"the last cost, not the first", budget.QuotaOptions{
			Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 20}}}, 0,
			[]transport.Kind{transport.Throttled, transport.Unavailable}, 80},
		{"the last cost, late", budget.QuotaOptions{Late: true,
			Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 20}}}, 0,
			[]transport.Kind{transport.Unavailable, transport.Throttled}, 95},
		{"no failure", budget.QuotaOptions{}, 50, nil, 51},
		{"no failure, 3 back", budget.QuotaOptions{Success: 3}, 50, nil, 53},
		{"no failure, full", budget.QuotaOptions{Success: 3}, 2, nil, 100},
		{"a free retry", budget.QuotaOptions{Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled),
			Tokens: 0}}}, 50,
			[]transport.Kind{transport.Throttled}, 50},
		{"a free retry, late", budget.QuotaOptions{Late: true,
			Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 0}}}, 50,
			[]transport.Kind{transport.Unavailable, transport.Throttled}, 45},
		{"a free retry, 1 back", budget.QuotaOptions{MinRefund: 1,
			Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled), Tokens: 0}}}, 50,
			[]transport.Kind{transport.Throttled}, 51},
		{"less than the cost back: the cost", budget.QuotaOptions{MinRefund: 1}, 50,
			[]transport.Kind{transport.Unavailable},
			50},
	} {
		b := policytest.Must(budget.NewTokenBucket(100, c.spent, 0))
		c.o.Bucket = b
		s := retrypolicy.Begin(policytest.Must(budget.NewQuota(&c.o)).Wrap(policytest.Again(time.Second)), "",
			policytest.Epoch)
		for _, k := range c.failures {
			fails(t, c.name, &s, k, time.Second)
		}
		succeeds(t, c.name, &s)
		if got := b.Tokens(policytest.Epoch); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// A failure returns nothing. A caller that gives up during the wait makes no retry, so its cost
// returns.
func TestQuotaKeepsTheCostOfFailedAttempts(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(100, 0, 0))
	p := newCrowd(policytest.Must(budget.NewQuota(
		&budget.QuotaOptions{Bucket: b})).Wrap(retrypolicy.MaxAttempts{Total: 2,
		Policy: policytest.Again(time.Second)}))
	s := retrypolicy.Begin(p, "", policytest.Epoch)
	fails(t, "first", &s, transport.Unavailable, time.Second)
	begins(t, "second", &s)
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Unavailable}
	if d, err := s.Failure(policytest.Epoch, 0, info, transport.Unavailable); err != nil ||
		d != (retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfAttempts}) {
		t.Errorf("second: %v, %v; want a stop, out of attempts", d, err)
	}
	if got := b.Tokens(policytest.Epoch); got != 95 {
		t.Errorf("%d after a failure", got)
	}
	s = retrypolicy.Begin(p, "", policytest.Epoch)
	fails(t, "third", &s, transport.Unavailable, time.Second)
	if s.End(); b.Tokens(policytest.Epoch) != 95 {
		t.Errorf("%d after giving up", b.Tokens(policytest.Epoch))
	}
}

// smithy-kotlin: at most 10, refill 10 a second, 10 for a first attempt, no breaker.
func TestQuotaWaitsForTheRefill(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		b := policytest.Must(budget.NewTokenBucket(10, 0, 10))
		p := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, First: 10,
			Wait: true})).Wrap(retrypolicy.NoRetry{})
		for i, want := range []time.Duration{0, time.Second} {
			s := retrypolicy.Begin(p, "", time.Now())
			d, err := s.Admit(time.Now(), 0)
			if err != nil || !d.Retry || d.Delay != want {
				t.Errorf("acquire %d: %v, %v; want a wait of %v", i, d, err, want)
			}
		}
		// With Do, which waits; a failure returns nothing.
		began := time.Now()
		runs := 0
		for range 3 {
			if err := retrypolicy.Do(context.Background(),
				p, func(context.Context) error { runs++; return transport.Unavailable }); !errors.Is(err,
				transport.Unavailable) {
				t.Error(err)
			}
		}
		if waited := time.Since(began); runs != 3 || waited != 3*time.Second {
			t.Errorf("%d runs in %v", runs, waited)
		}
	})
}

// smithy-kotlin: first attempt 5, success +3: 10, 5, 8. And with the breaker a second acquire of 10
// is refused.
func TestQuotaOfFirstAttempts(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(10, 0, 0))
	p := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, First: 5,
		Success: 3})).Wrap(retrypolicy.NoRetry{})
	s := retrypolicy.Begin(p, "", policytest.Epoch)
	if d, err := s.Admit(policytest.Epoch, 0); err != nil || !d.Retry || b.Tokens(policytest.Epoch) != 5 {
		t.Errorf("%v, %v, %d left", d, err, b.Tokens(policytest.Epoch))
	}
	if err := s.Success(policytest.Epoch); err != nil || b.Tokens(policytest.Epoch) != 8 {
		t.Errorf("%v, %d left", err, b.Tokens(policytest.Epoch))
	}
	b = policytest.Must(budget.NewTokenBucket(10, 0, 0))
	p = policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: b, First: 10})).Wrap(retrypolicy.NoRetry{})
	for i, want := range []retrypolicy.Decision{{Retry: true}, {Reason: retrypolicy.ReasonOutOfQuota}} {
		s := retrypolicy.Begin(p, "", policytest.Epoch)
		if d, err := s.Admit(policytest.Epoch, 0); err != nil || d != want {
			t.Errorf("acquire %d: %v, %v", i, d, err)
		}
	}
}

// Early: an empty bucket refuses at once, although it refills during the delay. Late: the tokens
// refilled during the delay count.
func TestQuotaEarlyAndLate(t *testing.T) {
	for _, c := range []struct {
		late   bool
		refill int
		tries  int
		took   time.Duration
	}{{false, 1, 1, 0}, {true, 1, 2, 10 * time.Second}, {true, 0, 1, 10 * time.Second}, {false, 0, 1, 0}} {
		testkit.Bubble(t, func(t *testing.T) {
			q := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Late: c.late,
				Bucket: policytest.Must(budget.NewTokenBucket(5, 5, c.refill))}))
			p := newCrowd(q.Wrap(retrypolicy.MaxAttempts{Total: 2, Policy: policytest.Again(10 * time.Second)}))
			began, tries := time.Now(), 0
			err := retrypolicy.Do(context.Background(), p,
				func(context.Context) error { tries++; return transport.Unavailable })
			want := retrypolicy.ReasonOutOfQuota
			if c.tries == 2 {
				want = retrypolicy.ReasonOutOfAttempts
			}
			if !errors.Is(err, want) || !errors.Is(err, transport.Unavailable) || tries != c.tries ||
				time.Since(began) != c.took {
				t.Errorf("late %v, refill %d: %v, %d tries in %v", c.late, c.refill, err, tries, time.Since(began))
			}
		})
	}
}

func TestTokenBucketConcurrentTakes(t *testing.T) {
	b := policytest.Must(budget.NewTokenBucket(10_000, 0, 0))
	var all sync.WaitGroup
	got := make([]int, 8)
	for g := range got {
		all.Go(func() {
			for {
				if _, ok := b.Take(policytest.Epoch, 3); !ok {
					return
				}
				got[g]++
			}
		})
	}
	all.Wait()
	sum := 0
	for _, n := range got {
		sum += n
	}
	if sum != 3333 || b.Tokens(policytest.Epoch) != 1 {
		t.Errorf("%d takes of 3 out of 10000, %d left", sum, b.Tokens(policytest.Epoch))
	}
}

// fails plays an attempt that fails and is retried after delay.
func fails(t *testing.T, what string, s *retrypolicy.Operation, kind transport.Kind, delay time.Duration) {
	t.Helper()
	begins(t, what, s)
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: kind}
	if d, err := s.Failure(policytest.Epoch, 0, info, kind); err != nil || !d.Retry || d.Delay != delay {
		t.Errorf("%s: %v, %v; want a retry after %v", what, d, err, delay)
	}
}

// succeeds plays an attempt that succeeds.
func succeeds(t *testing.T, what string, s *retrypolicy.Operation) {
	t.Helper()
	begins(t, what, s)
	if err := s.Success(policytest.Epoch); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func begins(t *testing.T, what string, s *retrypolicy.Operation) {
	t.Helper()
	if d, err := s.Admit(policytest.Epoch, 0); err != nil || !d.Retry || d.Delay != 0 {
		t.Fatalf("%s: Admit: %v, %v", what, d, err)
	}
}

// A retry that does not begin gives its tokens back, however late; its time says nothing about the
// clock.
func TestAQuotaGetsBackNoMoreThanWasTaken(t *testing.T) {
	bucket := policytest.Must(budget.NewTokenBucket(10, 0, 1))
	p := policytest.Must(budget.NewQuota(&budget.QuotaOptions{Bucket: bucket})).Wrap(always)
	s := policytest.Series(p)
	s.Decide(policytest.Retried(policytest.At(0), 1))
	if _, ok := bucket.Take(policytest.Sec(20), 10); !ok {
		t.Fatal("not full after 20 s")
	}
	s.End()
	if got := bucket.Tokens(policytest.Sec(20)); got != 5 {
		t.Errorf("%d tokens, want the 5 of the retry", got)
	}
}

// A quota around both policies of a client charges each retry once, and refunds it once.
func TestAQuotaAroundBothPoliciesOfAClient(t *testing.T) {
	for _, o := range []budget.QuotaOptions{{}, {Late: true}} {
		bucket := policytest.Must(budget.NewTokenBucket(100, 50, 0))
		o.Bucket, o.MinRefund, o.ExtraRefund = bucket, 5, 1
		q := policytest.Must(budget.NewQuota(&o))
		both := reconnect.Policies{Policy: q.Wrap(always), Paced: q.Wrap(always)}
		s := both.Begin("")
		a := policytest.At(0)
		s.Admit(a)
		a = policytest.As(a, transport.Throttled)
		s.Report(retrypolicy.VerdictAgain, a)
		a.Retry = 1
		both.Decide(s, &a)
		if d := s.Admit(a); !d.Retry || bucket.Tokens(policytest.Epoch) != 45 {
			t.Errorf("late %v: %+v, %d tokens, want 45", o.Late, d, bucket.Tokens(policytest.Epoch))
		}
		s.Report(retrypolicy.VerdictSucceed, a)
		if got := bucket.Tokens(policytest.Epoch); got != 51 {
			t.Errorf("late %v: %d tokens after a success, want 51", o.Late, got)
		}
	}
}
