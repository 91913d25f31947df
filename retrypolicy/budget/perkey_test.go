//go:build !tinygo

package budget_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
)

func TestPerKeyEachKeyHasItsOwnPolicy(t *testing.T) {
	made := map[string]*closed{}
	p, err := budget.NewPerKey(8, func(key string) retrypolicy.Policy {
		if made[key] != nil {
			t.Errorf("%q was made twice", key)
		}
		made[key] = &closed{d: retrypolicy.Decision{Retry: true}}
		return made[key]
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "bb", "", "bb", "ccc", "a", "bb"} {
		s := p.Begin(retrypolicy.Start{Key: key})
		s.Admit(retrypolicy.Attempt{})
		s.Report(retrypolicy.VerdictSucceed, retrypolicy.Attempt{})
		s.End()
	}
	for key, want := range map[string]int{"": 1, "a": 2, "bb": 3, "ccc": 1} {
		if w := made[key]; w.asked != want || w.got != want {
			t.Errorf("%q: %d, %d calls, want %d each", key, w.asked, w.got, want)
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
			p.Begin(retrypolicy.Start{Key: string(k)})
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
		one.Begin(retrypolicy.Start{Key: strconv.Itoa(i / 2)})
		if one.Len() != 1 {
			t.Fatalf("%d keys", one.Len())
		}
	}
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
		_, err := budget.NewPerKey(c.max, c.make)
		policytest.CheckRefusal(t, err, c.want)
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
	if d := p.Begin(retrypolicy.Start{Key: "x"}).Decide(retrypolicy.Attempt{}); d.Retry {
		t.Errorf("%v", d)
	}
	policytest.CheckInvalid(t, p, "")
}

func TestPerKeyConcurrentUse(t *testing.T) {
	var made atomic.Int64
	p, err := budget.NewPerKey(16, func(string) retrypolicy.Policy {
		made.Add(1)
		o := compat.AWSStandard.Options()
		q, err := compat.NewAWS(o)
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
				a := retrypolicy.Attempt{Retry: 1, Now: policytest.Epoch}
				s := p.Begin(retrypolicy.Start{Key: fmt.Sprint((i*(g+1) + g) % 40)})
				s.Admit(a)
				s.Report(retrypolicy.VerdictAgain, a)
				s.Decide(a)
				s.End()
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
