//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func newBucket(t testing.TB, size, spent, refill int) *retrypolicy.TokenBucket {
	t.Helper()
	b, err := retrypolicy.NewTokenBucket(size, spent, refill)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func newQuota(t testing.TB, o *retrypolicy.QuotaOptions) *retrypolicy.Quota {
	t.Helper()
	q, err := retrypolicy.NewQuota(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestTokenBucketTakeAndGive(t *testing.T) {
	b := newBucket(t, 50, 0, 0)
	for _, c := range []struct {
		take, give int
		ok         bool
		left       int
	}{
		{take: 5, ok: true, left: 45}, {give: 5, left: 50}, // botocore test_quota
		{take: 5, ok: true, left: 45}, {give: 10, left: 50}, // no more than its size
		{take: 51, left: 50}, {take: 50, ok: true, left: 0}, {take: 1, left: 0}, {take: 0, ok: true, left: 0},
		{give: math.MaxInt, left: 50}, {give: -7, left: 50}, {take: 20, ok: true, left: 30}, {give: -7, left: 30},
	} {
		if c.give != 0 {
			b.Give(epoch, c.give)
		} else if wait, ok := b.Take(epoch, c.take); ok != c.ok || !ok && wait >= 0 {
			t.Errorf("take %d: %v, %v; without a refill a refusal is for good", c.take, wait, ok)
		}
		if got := b.Tokens(epoch); got != c.left {
			t.Errorf("%+v: %d left", c, got)
		}
	}
}

// A clock that is set back stops the refill for no longer than it takes to fill the bucket.
func TestTokenBucketIsRefilledAlthoughTheClockWasSetBack(t *testing.T) {
	b := newBucket(t, 10, 0, 5)
	b.Take(epoch, 10)
	back := epoch.AddDate(-1, 0, 0)
	if n := b.Tokens(back); n != 0 {
		t.Errorf("%d tokens right after the step", n)
	}
	if n := b.Tokens(back.Add(time.Second)); n != 5 {
		t.Errorf("%d tokens a second after the step, want 5", n)
	}
	if n := b.Tokens(back); n != 5 { // a look that is somewhat older
		t.Errorf("%d tokens, want 5", n)
	}
	if n := b.Tokens(back.Add(2 * time.Second)); n != 10 {
		t.Errorf("%d tokens two seconds after the step, want 10", n)
	}
}

// smithy-kotlin loses fractions of a token at every look at the bucket; with 10 a second and a look
// each 90 ms it is never refilled.
func TestTokenBucketCarriesFractionsOver(t *testing.T) {
	b := newBucket(t, 100, 100, 10)
	now := epoch
	if got := b.Tokens(now); got != 0 {
		t.Fatalf("%d at the start", got)
	}
	for range 100 {
		now = now.Add(90 * ms)
		b.Tokens(now)
	}
	if got := b.Tokens(now); got != 90 {
		t.Errorf("%d after 9 s at 10 a second", got)
	}
	// Against a count in one go, at odd rates and times.
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		rate := 1 + rng.IntN(5000)
		often, once := newBucket(t, math.MaxInt32, math.MaxInt32, rate), newBucket(t, math.MaxInt32, math.MaxInt32, rate)
		often.Tokens(epoch)
		once.Tokens(epoch)
		at := epoch
		for range 100 {
			at = at.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
			often.Tokens(at)
		}
		want := int(at.Sub(epoch).Seconds() * float64(rate))
		a, o := often.Tokens(at), once.Tokens(at)
		if a != o || o < want-1 || o > want+1 {
			t.Fatalf("seed %d: rate %d, %v: %d looking often, %d once, want %d", seed, rate, at.Sub(epoch), a, o, want)
		}
	}
}

func TestTokenBucketRefill(t *testing.T) {
	b := newBucket(t, 10, 10, 4)
	if wait, ok := b.Take(epoch, 3); ok || wait != 750*ms {
		t.Errorf("3 tokens at 4 a second: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(sec(.6), 3); ok || wait != 150*ms {
		t.Errorf("after 600 ms: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(sec(.1), 3); ok || wait != 150*ms { // an older look at the clock
		t.Errorf("a clock that went back: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(sec(.75), 3); !ok {
		t.Errorf("after the wait: %v, %v", wait, ok)
	}
	if wait, ok := b.Take(sec(.75), 11); ok || wait >= 0 {
		t.Errorf("more than it holds: %v, %v", wait, ok)
	}
	if got := b.Tokens(sec(1e6)); got != 10 {
		t.Errorf("after days: %d", got)
	}
	if got := b.Tokens(epoch.AddDate(5000, 0, 0)); got != 10 {
		t.Errorf("after 5000 years: %d", got)
	}
	// The fraction is dropped when it is full: 200 ms later there is nothing yet.
	if wait, ok := b.Take(epoch.AddDate(5000, 0, 0), 10); !ok {
		t.Error(wait)
	}
	if got := b.Tokens(epoch.AddDate(5000, 0, 0).Add(200 * ms)); got != 0 {
		t.Errorf("%d out of nothing", got)
	}
	b = newBucket(t, 10, 1, 4)
	b.Tokens(epoch)
	if got := b.Tokens(sec(.4)); got != 10 { // 1.6 tokens for a place of one
		t.Errorf("%d", got)
	}
	b.Take(sec(.4), 10)
	if got := b.Tokens(sec(.6)); got != 0 {
		t.Errorf("%d of what there was no room for", got)
	}
	if wait, ok := newBucket(t, 10, 10, 3).Take(epoch, 1); ok || wait != 333_333_334 {
		t.Errorf("a third of a second is rounded up: %d, %v", wait, ok)
	}
}

func TestQuotaOptionsAreChecked(t *testing.T) {
	b := newBucket(t, 1, 0, 0)
	beyond := int64(1) << 31 // negative where an int has 32 bits
	for _, c := range []struct {
		o    retrypolicy.QuotaOptions
		want string
	}{
		{retrypolicy.QuotaOptions{Size: -1}, "size"}, {retrypolicy.QuotaOptions{Size: int(beyond)}, "size"},
		{retrypolicy.QuotaOptions{Spent: -1}, "spent"}, {retrypolicy.QuotaOptions{Size: 5, Spent: 6}, "spent"},
		{retrypolicy.QuotaOptions{Spent: 501},
			"spent"},
		{retrypolicy.QuotaOptions{Refill: -1}, "refill"}, {retrypolicy.QuotaOptions{Refill: 1_000_001}, "refill"},
		{retrypolicy.QuotaOptions{Retry: 65536}, "Retry"},
		{retrypolicy.QuotaOptions{First: -1}, "First"}, {retrypolicy.QuotaOptions{First: 65536}, "First"},
		{retrypolicy.QuotaOptions{Success: 65536}, "Success"},
		{retrypolicy.QuotaOptions{LeastBack: -1}, "LeastBack"}, {retrypolicy.QuotaOptions{LeastBack: 65536}, "LeastBack"},
		{retrypolicy.QuotaOptions{Bucket: b, Size: 1}, "leave them 0"}, {retrypolicy.QuotaOptions{Bucket: b, Spent: 1},
			"leave them 0"},
		{retrypolicy.QuotaOptions{Bucket: b, Refill: 1}, "leave them 0"}, {retrypolicy.QuotaOptions{Wait: true},
			"needs Refill"},
		{retrypolicy.QuotaOptions{Costs: []retrypolicy.Cost{{Tokens: 1}}}, "without Kinds"},
		{retrypolicy.QuotaOptions{Costs: []retrypolicy.Cost{{retrypolicy.Kinds(kServer), -1}}}, "Costs.Tokens"},
	} {
		if q, err := retrypolicy.NewQuota(&c.o); q != nil || !errors.Is(err, transport.Invalid) || !contains(err, c.want) {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	checkInvalid(t, newQuota(t, nil).Wrap(nil), "is nil")
	checkInvalid(t, (*retrypolicy.Quota)(nil).Wrap(retrypolicy.NoRetry{}), "Quota is nil")
	checkInvalid(t, newQuota(t, nil).Wrap(retrypolicy.NoRetry{}), "")
}

// again is a policy that always retries after d.
func again(d time.Duration) retrypolicy.Policy {
	if d == 0 {
		return retrypolicy.Immediately{}
	}
	return retrypolicy.Fixed{Delay: d}
}

// smithy-kotlin: costs 2 and 3 of 10.
func TestQuotaCostsByClass(t *testing.T) {
	for _, c := range []struct {
		kind transport.Kind
		left int
	}{{kThrottle, 7}, {kNetwork, 7}, {kTimeout, 7}, {kClient, 8}, {kServer, 8}} {
		b := newBucket(t, 10, 0, 0)
		// the first row that fits counts
		costs := []retrypolicy.Cost{{retrypolicy.Kinds(kThrottle, kNetwork, kTimeout), 3}, {retrypolicy.Kinds(kThrottle), 9}}
		p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b, Retry: 2, Costs: costs}).Wrap(again(0))
		costs[0].Tokens = 9 // the options were copied
		d := p.Decide(retrypolicy.Attempt{Retry: 1, Kind: c.kind, Now: epoch})
		if got := b.Tokens(epoch); got != c.left || !d.Retry || int(d.Cost) != 10-c.left {
			t.Errorf("%v: %d left, %+v", c.kind, got, d)
		}
	}
}

// What the policy inside refuses costs nothing, and keeps its own reason.
func TestQuotaIsAskedLast(t *testing.T) {
	b := newBucket(t, 10, 0, 0)
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b}).Wrap(retrypolicy.MaxAttempts{Total: 1, Policy: again(0)})
	d := p.Decide(retrypolicy.Attempt{Retry: 1, Now: epoch})
	if d.Retry || d.Reason != retrypolicy.OutOfAttempts || b.Tokens(epoch) != 10 {
		t.Errorf("%v, %d left", d, b.Tokens(epoch))
	}
}

// Java: 100 tokens, cost 5. Only the last cost comes back.
func TestQuotaRefund(t *testing.T) {
	for _, c := range []struct {
		name     string
		o        retrypolicy.QuotaOptions
		spent    int
		failures []transport.Kind
		want     int // of 100, after a success
	}{
		{"one failure", retrypolicy.QuotaOptions{}, 0, []transport.Kind{kServer}, 100},
		{"two failures", retrypolicy.QuotaOptions{}, 0, []transport.Kind{kServer, kServer}, 95},
		{"two failures, late", retrypolicy.QuotaOptions{Late: true}, 0, []transport.Kind{kServer, kServer}, 95},
		{"the last cost, not the first", retrypolicy.QuotaOptions{Costs: []retrypolicy.Cost{{retrypolicy.Kinds(kThrottle),
			20}}}, 0, []transport.Kind{kThrottle, kServer}, 80},
		{"the last cost, late", retrypolicy.QuotaOptions{Late: true, Costs: []retrypolicy.Cost{{retrypolicy.Kinds(kThrottle),
			20}}}, 0, []transport.Kind{kServer, kThrottle}, 95},
		{"no failure", retrypolicy.QuotaOptions{}, 50, nil, 51},
		{"no failure, 3 back", retrypolicy.QuotaOptions{Success: 3}, 50, nil, 53},
		{"no failure, full", retrypolicy.QuotaOptions{Success: 3}, 2, nil, 100},
		{"a free retry", retrypolicy.QuotaOptions{Costs: []retrypolicy.Cost{{retrypolicy.Kinds(kThrottle), 0}}}, 50,
			[]transport.Kind{kThrottle}, 50},
		{"a free retry, late", retrypolicy.QuotaOptions{Late: true, Costs: []retrypolicy.Cost{{retrypolicy.Kinds(kThrottle),
			0}}}, 50, []transport.Kind{kServer, kThrottle}, 45},
		{"a free retry, 1 back", retrypolicy.QuotaOptions{LeastBack: 1,
			Costs: []retrypolicy.Cost{{retrypolicy.Kinds(kThrottle), 0}}}, 50, []transport.Kind{kThrottle}, 51},
		{"less than the cost back: the cost", retrypolicy.QuotaOptions{LeastBack: 1}, 50, []transport.Kind{kServer}, 50},
	} {
		b := newBucket(t, 100, c.spent, 0)
		c.o.Bucket = b
		s := retrypolicy.Begin(newQuota(t, &c.o).Wrap(again(time.Second)), "", epoch)
		for _, k := range c.failures {
			try(t, c.name, &s, epoch, 0, step{kind: k, delay: time.Second})
		}
		try(t, c.name, &s, epoch, 0, step{success: true})
		if got := b.Tokens(epoch); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// A failure gives nothing back. A caller that gives up while it waits makes no retry, so it gets
// the cost back.
func TestQuotaKeepsWhatFailedTriesPaid(t *testing.T) {
	b := newBucket(t, 100, 0, 0)
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b}).Wrap(retrypolicy.MaxAttempts{Total: 2,
		Policy: again(time.Second)})
	s := retrypolicy.Begin(p, "", epoch)
	try(t, "first", &s, epoch, 0, step{kind: kServer, delay: time.Second})
	try(t, "second", &s, epoch, 0, step{kind: kServer, stop: retrypolicy.OutOfAttempts})
	if got := b.Tokens(epoch); got != 95 {
		t.Errorf("%d after a failure", got)
	}
	s = retrypolicy.Begin(p, "", epoch)
	try(t, "third", &s, epoch, 0, step{kind: kServer, delay: time.Second})
	if err := s.Abandon(epoch, nil); err != nil || b.Tokens(epoch) != 95 {
		t.Errorf("%v, %d after giving up", err, b.Tokens(epoch))
	}
}

// The outcomes that an Observe stands for count each.
func TestQuotaObservesSeveralSuccesses(t *testing.T) {
	b := newBucket(t, 100, 60, 0)
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b}).Wrap(again(0))
	retrypolicy.Observe(p, retrypolicy.Attempt{Count: 7, Now: epoch})
	if got := b.Tokens(epoch); got != 47 {
		t.Errorf("%d", got)
	}
	retrypolicy.Observe(p, retrypolicy.Attempt{Count: 7, Now: epoch, Err: kServer})
	if got := b.Tokens(epoch); got != 47 {
		t.Errorf("%d after failures", got)
	}
}

// smithy-kotlin: at most 10, refill 10 a second, 10 for a first try, no breaker.
func TestQuotaWaitsForTheRefill(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		b := newBucket(t, 10, 0, 10)
		p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b, First: 10, Wait: true}).Wrap(retrypolicy.NoRetry{})
		for i, want := range []time.Duration{0, time.Second} {
			s := retrypolicy.Begin(p, "", time.Now())
			d, err := s.Admit(time.Now(), 0)
			if err != nil || !d.Retry || d.Delay != want {
				t.Errorf("acquire %d: %v, %v; want a wait of %v", i, d, err, want)
			}
		}
		// With Do, which waits; a failure gives nothing back.
		began := time.Now()
		runs := 0
		for range 3 {
			if err := retrypolicy.Do(context.Background(),
				p, func(context.Context) error { runs++; return kServer }); !errors.Is(err, kServer) {
				t.Error(err)
			}
		}
		if waited := time.Since(began); runs != 3 || waited != 3*time.Second {
			t.Errorf("%d runs in %v", runs, waited)
		}
	})
}

// smithy-kotlin: first try 5, success +3: 10, 5, 8. And with the breaker a second acquire of 10 is
// refused.
func TestQuotaOfFirstTries(t *testing.T) {
	b := newBucket(t, 10, 0, 0)
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b, First: 5, Success: 3}).Wrap(retrypolicy.NoRetry{})
	s := retrypolicy.Begin(p, "", epoch)
	if d, err := s.Admit(epoch, 0); err != nil || !d.Retry || b.Tokens(epoch) != 5 {
		t.Errorf("%v, %v, %d left", d, err, b.Tokens(epoch))
	}
	if err := s.Success(epoch); err != nil || b.Tokens(epoch) != 8 {
		t.Errorf("%v, %d left", err, b.Tokens(epoch))
	}
	b = newBucket(t, 10, 0, 0)
	p = newQuota(t, &retrypolicy.QuotaOptions{Bucket: b, First: 10}).Wrap(retrypolicy.NoRetry{})
	for i, want := range []retrypolicy.Decision{{Retry: true}, {Reason: retrypolicy.OutOfQuota}} {
		s := retrypolicy.Begin(p, "", epoch)
		if d, err := s.Admit(epoch, 0); err != nil || d != want {
			t.Errorf("acquire %d: %v, %v", i, d, err)
		}
	}
}

// The two orders: early, an empty bucket refuses at once, though it is refilled during the delay;
// late, what came back meanwhile counts.
func TestQuotaEarlyAndLate(t *testing.T) {
	for _, c := range []struct {
		late   bool
		refill int
		tries  int
		took   time.Duration
	}{{false, 1, 1, 0}, {true, 1, 2, 10 * time.Second}, {true, 0, 1, 10 * time.Second}, {false, 0, 1, 0}} {
		bounded.Test(t, func(t *testing.T) {
			q := newQuota(t, &retrypolicy.QuotaOptions{Size: 5, Spent: 5, Refill: c.refill, Late: c.late})
			p := q.Wrap(retrypolicy.MaxAttempts{Total: 2, Policy: again(10 * time.Second)})
			began, tries := time.Now(), 0
			err := retrypolicy.Do(context.Background(), p, func(context.Context) error { tries++; return kServer })
			want := retrypolicy.OutOfQuota
			if c.tries == 2 {
				want = retrypolicy.OutOfAttempts
			}
			if !errors.Is(err, want) || !errors.Is(err, kServer) || tries != c.tries || time.Since(began) != c.took {
				t.Errorf("late %v, refill %d: %v, %d tries in %v", c.late, c.refill, err, tries, time.Since(began))
			}
		})
	}
}

// A token is only paid for a try that begins.
func TestQuotaGivesBackWhatAGateInsideDoesNotLetIn(t *testing.T) {
	inside := &closed{d: retrypolicy.Decision{Retry: true, Delay: time.Second}}
	b := newBucket(t, 10, 0, 0)
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b, First: 10, Late: true}).Wrap(inside)
	for range 3 {
		if d := retrypolicy.Admit(p, retrypolicy.Attempt{Now: epoch}); d != inside.d || b.Tokens(epoch) != 10 {
			t.Errorf("%v, %d left", d, b.Tokens(epoch))
		}
	}
	inside.d = retrypolicy.Decision{Reason: retrypolicy.Rejected}
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{Now: epoch}); d != inside.d || b.Tokens(epoch) != 10 {
		t.Errorf("%v, %d left", d, b.Tokens(epoch))
	}
	inside.d = retrypolicy.Decision{Retry: true}
	asked := inside.asked
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{Now: epoch}); !d.Retry || d.Cost != 0 || b.Tokens(epoch) != 0 ||
		inside.asked != asked+1 {
		t.Errorf("%+v, %d left", d, b.Tokens(epoch))
	}
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{Retry: 1, Now: epoch}); d.Reason != retrypolicy.OutOfQuota ||
		inside.asked != asked+1 {
		t.Errorf("%+v; the gate inside was asked about a try that the quota refuses", d)
	}
	b.Give(epoch, 5)
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{Retry: 1, Now: epoch}); !d.Retry || d.Cost != 5 {
		t.Errorf("%+v", d)
	}
}

// A bucket of one's own: here one that other processes could share.
type fakeBucket struct {
	takes, gives []int
	wait         time.Duration
	ok           bool
}

func (f *fakeBucket) Take(_ time.Time, n int) (time.Duration, bool) {
	f.takes = append(f.takes, n)
	return f.wait, f.ok
}
func (f *fakeBucket) Give(_ time.Time, n int) { f.gives = append(f.gives, n) }

func TestQuotaUsesAnyBucket(t *testing.T) {
	f := &fakeBucket{ok: true}
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: f, Wait: true}).Wrap(again(0))
	s := retrypolicy.Begin(p, "", epoch)
	try(t, "first", &s, epoch, 0, step{kind: kServer})
	try(t, "second", &s, epoch, 0, step{success: true})
	f.ok, f.wait = false, 0 // it says to ask again without saying when
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{Retry: 1, Now: epoch}); !d.Retry || d.Delay <= 0 {
		t.Errorf("%v: a loop without a wait would spin", d)
	}
	f.wait = -1
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{Retry: 1, Now: epoch}); d.Retry ||
		d.Reason != retrypolicy.OutOfQuota {
		t.Errorf("%v", d)
	}
	if len(f.takes) != 3 || f.takes[0] != 5 || len(f.gives) != 2 || f.gives[0] != 0 || f.gives[1] != 5 {
		t.Errorf("takes %v, gives %v", f.takes, f.gives)
	}
}

// Whatever many goroutines do, tokens neither appear nor vanish: at the end the balance is what was
// taken and given.
func TestQuotaConcurrentUse(t *testing.T) {
	b := newBucket(t, 500, 0, 0)
	p := newQuota(t, &retrypolicy.QuotaOptions{Bucket: b}).Wrap(retrypolicy.MaxAttempts{Total: 4, Policy: again(0)})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 2000 {
				left := rng.IntN(3)
				err := retrypolicy.Do(context.Background(), p, func(context.Context) error {
					if left--; left >= 0 {
						return kServer
					}
					return nil
				})
				if err != nil && !errors.Is(err, retrypolicy.OutOfQuota) {
					t.Error(err)
				}
				if n := b.Tokens(epoch); n < 0 || n > 500 {
					t.Errorf("%d tokens", n)
				}
			}
		})
	}
	all.Wait()
}

func TestTokenBucketConcurrentTakes(t *testing.T) {
	b := newBucket(t, 10_000, 0, 0)
	var all sync.WaitGroup
	got := make([]int, 8)
	for g := range got {
		all.Go(func() {
			for {
				if _, ok := b.Take(epoch, 3); !ok {
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
	if sum != 3333 || b.Tokens(epoch) != 1 {
		t.Errorf("%d takes of 3 out of 10000, %d left", sum, b.Tokens(epoch))
	}
}

func TestQuotaAllocatesNothing(t *testing.T) {
	p := newQuota(t, &retrypolicy.QuotaOptions{Refill: 1, First: 1, Late: true}).Wrap(again(0))
	n := 0
	if allocs := testing.AllocsPerRun(200, func() {
		n++
		a := retrypolicy.Attempt{Retry: n & 1, Now: sec(float64(n))}
		sink = retrypolicy.Admit(p, a)
		sink = p.Decide(a)
		retrypolicy.Observe(p, a)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
