//go:build !tinygo

package budget_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat/aws"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// watched records the calls of the policy of one key.
type watched struct {
	key                         string
	decided, observed, admitted int
	last                        retrypolicy.Attempt
}

func (w *watched) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	w.decided++
	w.last = a
	return retrypolicy.Decision{Retry: true, Delay: time.Duration(len(w.key))}
}
func (w *watched) Observe(a retrypolicy.Attempt) { w.observed++; w.last = a }
func (w *watched) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	w.admitted++
	return retrypolicy.Decision{Retry: true, Delay: time.Duration(100 + len(w.key))}
}

func TestPerKeyEachKeyHasItsOwnPolicy(t *testing.T) {
	made := map[string]*watched{}
	p, err := budget.NewPerKey(8, func(key string) retrypolicy.Policy {
		if made[key] != nil {
			t.Errorf("%q was made twice", key)
		}
		made[key] = &watched{key: key}
		return made[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range []string{"a", "bb", "", "bb", "ccc", "a", "bb"} {
		a := retrypolicy.Attempt{Retry: i, Key: key}
		if d := p.Decide(a); d.Delay != time.Duration(len(key)) {
			t.Errorf("%q: Decide: %v", key, d)
		}
		if d := retrypolicy.Admit(p, a); d.Delay != time.Duration(100+len(key)) {
			t.Errorf("%q: Admit: %v", key, d)
		}
		retrypolicy.Observe(p, a)
		if made[key].last.Retry != i {
			t.Errorf("%q: the policy got %+v", key, made[key].last)
		}
	}
	for key, want := range map[string]int{"": 1, "a": 2, "bb": 3, "ccc": 1} {
		if w := made[key]; w.decided != want || w.observed != want || w.admitted != want {
			t.Errorf("%q: %d, %d, %d calls, want %d each", key, w.decided, w.observed, w.admitted, want)
		}
	}
	if p.Len() != 4 || len(made) != 4 {
		t.Errorf("%d keys, %d made", p.Len(), len(made))
	}
}

func TestPerKeyForgetsTheKeyNotUsedForLongest(t *testing.T) {
	made := map[string]int{}
	p, err := budget.NewPerKey(3, func(key string) retrypolicy.Policy { made[key]++; return retrypolicy.NoRetry{} })
	if err != nil {
		t.Fatal(err)
	}
	use := func(keys string) {
		for _, k := range keys {
			p.Decide(retrypolicy.Attempt{Key: string(k)})
			if p.Len() > 3 {
				t.Fatalf("%d keys, want 3 at most", p.Len())
			}
		}
	}
	use("ab")  // keys "", a, b
	use("cab") // c evicts ""; a and b were used since
	use("d")   // evicts c
	use("bad") // all present
	use("c")   // evicts b
	use("ad")  // still present
	use("b")   // evicts c
	for key, want := range map[string]int{"": 1, "a": 1, "b": 2, "c": 2, "d": 1} {
		if made[key] != want {
			t.Errorf("%q was made %d times, want %d", key, made[key], want)
		}
	}
	// One key.
	one, err := budget.NewPerKey(1, func(string) retrypolicy.Policy { return retrypolicy.NoRetry{} })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		one.Decide(retrypolicy.Attempt{Key: strconv.Itoa(i / 2)})
		if one.Len() != 1 {
			t.Fatalf("%d keys", one.Len())
		}
	}
}

// The empty quota of one tenant does not affect the others.
func TestPerKeyKeepsQuotasApart(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		p, err := budget.NewPerKey(10, func(string) retrypolicy.Policy {
			o := aws.Java()
			o.Quota.Size, o.Attempts = 10, 10
			q, err := aws.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return q
		})
		if err != nil {
			t.Fatal(err)
		}
		run := func(key string) int {
			tries := 0
			r := retrypolicy.Retrier{Policy: p, Key: key}
			err := r.Do(context.Background(), func(context.Context) error { tries++; return transport.Unavailable })
			if !errors.Is(err, retrypolicy.ReasonOutOfQuota) {
				t.Errorf("%s: %v", key, err)
			}
			return tries
		}
		for _, c := range []struct {
			key  string
			want int
		}{{"bad", 3}, {"bad", 1}, {"good", 3}, {"", 3}, {"bad", 1}} {
			if got := run(c.key); got != c.want {
				t.Errorf("%q: %d tries, want %d", c.key, got, c.want)
			}
		}
	})
}

func TestPerKeyRefusesBadArguments(t *testing.T) {
	fine := func(string) retrypolicy.Policy { return retrypolicy.NoRetry{} }
	for _, c := range []struct {
		max  int
		make func(string) retrypolicy.Policy
		want string
	}{
		{0, fine, "max is below 1"}, {-1, fine, "max is below 1"}, {1, nil, "make is nil"},
		{1, func(string) retrypolicy.Policy { return nil }, "returned by PerKey's make is nil"},
		{1, func(string) retrypolicy.Policy { return retrypolicy.Backoff{Base: -1} }, "Base is negative"},
	} {
		if p, err := budget.NewPerKey(c.max, c.make); p != nil || !errors.Is(err, transport.Invalid) ||
			!policytest.Contains(err, c.want) {
			t.Errorf("want %q: %v", c.want, err)
		}
	}
	policytest.CheckInvalid(t, new(budget.PerKey), "use NewPerKey")
	policytest.CheckInvalid(t, (*budget.PerKey)(nil), "use NewPerKey")
	// A later key whose policy is invalid does not retry, and does not panic.
	p, err := budget.NewPerKey(2, func(key string) retrypolicy.Policy {
		if key == "" {
			return retrypolicy.Backoff{Base: 1}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Decide(retrypolicy.Attempt{Key: "x"}); d.Retry {
		t.Errorf("%v", d)
	}
	policytest.CheckInvalid(t, p, "")
}

func TestPerKeyConcurrentUse(t *testing.T) {
	var made atomic.Int64
	p, err := budget.NewPerKey(16, func(string) retrypolicy.Policy {
		made.Add(1)
		o := aws.Standard2026()
		q, err := aws.New(o)
		if err != nil {
			t.Error(err)
		}
		return q
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 3000 {
				a := retrypolicy.Attempt{Key: fmt.Sprint((i*(g+1) + g) % 40), Retry: 1, Now: policytest.Epoch}
				retrypolicy.Admit(p, a)
				p.Decide(a)
				retrypolicy.Observe(p, a)
				if n := p.Len(); n > 16 {
					t.Errorf("%d keys", n)
					return
				}
			}
		})
	}
	all.Wait()
	if made.Load() < 40 {
		t.Errorf("%d policies made for 40 keys", made.Load())
	}
}

func TestPerKeyAllocatesNothingForAKnownKey(t *testing.T) {
	p, err := budget.NewPerKey(4, func(string) retrypolicy.Policy { return retrypolicy.Backoff{Base: time.Second} })
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"a", "b", "c"}
	n := 0
	if allocs := testing.AllocsPerRun(100, func() {
		n++
		sink = p.Decide(retrypolicy.Attempt{Retry: 1, Key: keys[n%3]})
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
