package retrypolicy_test

import (
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// kindsOf returns the decisions of p about failures of these Kinds, in order.
func kindsOf(p retrypolicy.Policy, kinds ...transport.Kind) []retrypolicy.Decision {
	var all []retrypolicy.Decision
	a := retrypolicy.Attempt{Rand: drawLast}
	for i, k := range kinds {
		a.Retry, a.Kind = i+1, k
		d := p.Decide(a)
		all = append(all, d)
		a.Last = d
	}
	return all
}

// The throttled back-off starts slower and uses the count of all retries: aws-sdk-js-v3 before
// 2026.
func TestByKindSharesTheCount(t *testing.T) {
	const T, N = transport.Throttled, transport.Timeout
	p := retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(T), Policy: retrypolicy.Backoff{Base: 500 * msec, Max: 20 * s,
			Jitter: retrypolicy.JitterFull}}},
		Default: retrypolicy.Backoff{Base: 100 * msec, Max: 20 * s, Jitter: retrypolicy.JitterFull},
	}
	for _, c := range []struct {
		kinds []transport.Kind
		want  []int // ms
	}{
		{[]transport.Kind{N, N, N, N, N, N, N}, []int{100, 200, 400, 800, 1600, 3200, 6400}},
		{[]transport.Kind{T, T, T, T, T, T, T}, []int{500, 1000, 2000, 4000, 8000, 16000, 20000}},
		{[]transport.Kind{N, T}, []int{100, 1000}},
		{[]transport.Kind{T, N}, []int{500, 200}},
	} {
		for i, d := range kindsOf(p, c.kinds...) {
			if !d.Retry || int(d.Delay/msec) != c.want[i] {
				t.Errorf("%v: retry %d is %v, want after %d ms", c.kinds, i+1, d, c.want[i])
			}
		}
	}
}

func TestByKindOwnCounts(t *testing.T) {
	const T, U, N = transport.Throttled, transport.Unavailable, transport.Network
	p := retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{
			{Kinds: retrypolicy.Kinds(T), OwnCount: true, Policy: retrypolicy.MaxAttempts{Total: 3,
				Policy: retrypolicy.Incremental{Step: s}}},
			{Kinds: retrypolicy.Kinds(T, U), OwnCount: true, Policy: retrypolicy.Incremental{Step: 10 * s}},
		},
		Default: retrypolicy.Incremental{Step: msec},
	}
	checkInvalid(t, p, "")
	got := kindsOf(p, N, T, U, N, T, U, N, T)
	want := []int{1, 1000, 10000, 4, 2000, 20000, 7, -1} // ms
	for i, d := range got {
		if want[i] < 0 {
			if d.Retry || d.Reason != retrypolicy.ReasonOutOfAttempts {
				t.Errorf("question %d: %+v, want a stop", i+1, d)
			}
		} else if !d.Retry || int(d.Delay/msec) != want[i] {
			t.Errorf("question %d: %+v, want after %d ms", i+1, d, want[i])
		}
	}
}

// A limit above 255 inside a rule ends the series at exactly that many attempts.
func TestByKindCountsBeyondAByte(t *testing.T) {
	p := retrypolicy.ByKind{Default: retrypolicy.NoRetry{}}
	for i := range 7 {
		p.Rules = append(p.Rules, retrypolicy.Rule{
			Kinds: retrypolicy.Kinds(transport.Kind(i)), OwnCount: true, Policy: retrypolicy.MaxAttempts{Total: 300 + i,
				Policy: retrypolicy.Incremental{Step: s}},
		})
	}
	checkInvalid(t, p, "")
	var a retrypolicy.Attempt
	for n := 1; n <= 310; n++ {
		for i := range 7 {
			a.Retry, a.Kind = a.Retry+1, transport.Kind(i)
			d := p.Decide(a)
			if n >= 300+i {
				if d.Retry || d.Reason != retrypolicy.ReasonOutOfAttempts {
					t.Fatalf("rule %d, failure %d: %v, want an end after %d tries", i, n, d, 300+i)
				}
				continue
			}
			if !d.Retry || d.Delay != time.Duration(n)*s {
				t.Fatalf("rule %d, failure %d: %v, want after %d s", i, n, d, n)
			}
			a.Last = d
		}
	}
}

// A full counter stays full and does not overflow into its neighbour.
func TestByKindCountersSaturate(t *testing.T) {
	p := retrypolicy.ByKind{Default: retrypolicy.NoRetry{}}
	for i := range 7 {
		p.Rules = append(p.Rules, retrypolicy.Rule{Kinds: retrypolicy.Kinds(transport.Kind(i)), OwnCount: true,
			Policy: retrypolicy.Incremental{Step: 1}})
	}
	var a retrypolicy.Attempt
	for i := range 7 {
		if i != 3 {
			a.Last.Counts[i] = math.MaxInt32 - 2
		}
	}
	for range 3 {
		for i := range 7 {
			a.Retry, a.Kind = math.MaxInt32, transport.Kind(i)
			a.Last = p.Decide(a)
		}
	}
	for i, n := range a.Last.Counts {
		want := uint32(math.MaxInt32)
		if i == 3 {
			want = 3
		}
		if n != want {
			t.Errorf("rule %d counts %d, want %d", i, n, want)
		}
	}
}

// A curve does not use the state of another one.
func TestByKindKeepsStepsApart(t *testing.T) {
	const T, U, N = transport.Throttled, transport.Unavailable, transport.Network
	decorrelated := retrypolicy.Backoff{Base: s, Jitter: retrypolicy.JitterDecorrelated}
	v2 := retrypolicy.Backoff{Base: 100 * msec, Jitter: retrypolicy.JitterDecorrelatedV2}
	p := retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(T), Policy: decorrelated}, {Kinds: retrypolicy.Kinds(U),
			Policy: retrypolicy.Fixed{Delay: 7 * s}}},
		Default: v2,
	}
	draws := func(p retrypolicy.Policy, kinds ...transport.Kind) []retrypolicy.Decision {
		var all []retrypolicy.Decision
		var last retrypolicy.Decision
		for i, k := range kinds {
			last = p.Decide(retrypolicy.Attempt{Retry: i + 1, Kind: k, Rand: drawHalf, Last: last})
			all = append(all, last)
		}
		return all
	}
	mixed := draws(p, N, T, T, U, T, N, N)
	alone := draws(decorrelated, T, T, T) // 2, 3.5, 5.75 s
	for i, n := range []int{1, 2, 4} {
		if mixed[n].Delay != alone[i].Delay {
			t.Errorf("retry %d after %v, want %v: what Fixed does between is no reason to forget", n+1, mixed[n].Delay,
				alone[i].Delay)
		}
	}
	if v := v2.Decide(retrypolicy.Attempt{Retry: 6, Rand: drawHalf}); mixed[5].Delay != v.Delay ||
		mixed[5].Step != v.Step {
		t.Errorf("the other curve: %+v, want %+v as without a memory", mixed[5], v)
	}
	if v := v2.Decide(retrypolicy.Attempt{Retry: 7, Rand: drawHalf, Last: mixed[5]}); mixed[6].Delay != v.Delay {
		t.Errorf("the other curve again: %+v, want %+v", mixed[6], v)
	}
}

func TestByKindInformsEveryRule(t *testing.T) {
	one, other, rest := &noter{}, &noter{}, &noter{gate: retrypolicy.Decision{Retry: true, Delay: s}}
	p := retrypolicy.ByKind{
		Rules:   []retrypolicy.Rule{{Kinds: 1, Policy: one}, {Kinds: 2, Policy: other}},
		Default: rest,
	}
	retrypolicy.Observe(p, retrypolicy.Attempt{Kind: transport.Network})
	if len(one.seen) != 1 || len(other.seen) != 1 || len(rest.seen) != 1 {
		t.Error("not all were told")
	}
	if d := retrypolicy.Admit(p, retrypolicy.Attempt{}); d.Delay != s || len(one.asked)+len(other.asked) != 0 {
		t.Errorf("Admit: %+v; only Default is asked", d)
	}
}

func TestByKindValidate(t *testing.T) {
	rule := retrypolicy.Rule{Kinds: 1, Policy: second}
	for _, c := range []struct {
		policy retrypolicy.ByKind
		want   string
	}{
		{retrypolicy.ByKind{Default: second}, ""},
		{retrypolicy.ByKind{}, "ByKind.Default is nil"},
		{retrypolicy.ByKind{Default: retrypolicy.Fixed{Delay: -1}}, "Fixed.Delay"},
		{retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Policy: second}}, Default: second}, "row without Kinds"},
		{retrypolicy.ByKind{Rules: []retrypolicy.Rule{{Kinds: 1}}, Default: second}, "ByKind.Rules.Policy is nil"},
		{retrypolicy.ByKind{Rules: []retrypolicy.Rule{rule, {Kinds: 1, Policy: retrypolicy.Fixed{Jitter: 2}}},
			Default: second},
			"Fixed.Jitter"},
		{retrypolicy.ByKind{Rules: []retrypolicy.Rule{rule, rule, rule, rule, rule, rule, rule, rule}, Default: second},
			"more than 7"},
	} {
		checkInvalid(t, c.policy, c.want)
	}
}
