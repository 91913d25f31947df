package retrypolicy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// kindsOf returns the decisions of p about failures of these Kinds, in order.
func kindsOf(p retrypolicy.Policy, kinds ...transport.Kind) []retrypolicy.Decision {
	return decisions(p, policytest.DrawLast, kinds...)
}

func decisions(p retrypolicy.Policy, draw uint64, kinds ...transport.Kind) (all []retrypolicy.Decision) {
	series := policytest.Series(p)
	defer series.End()
	for i, k := range kinds {
		all = append(all, series.Decide(retrypolicy.Attempt{Retry: i + 1, Kind: k, Rand: draw}))
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
	policytest.CheckInvalid(t, p, "")
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

// A ByKind inside a rule counts for itself.
func TestByKindInsideByKind(t *testing.T) {
	const T, U, N = transport.Throttled, transport.Unavailable, transport.Network
	own := func(k transport.Kind, step time.Duration, rest retrypolicy.Policy) retrypolicy.ByKind {
		return retrypolicy.ByKind{Default: rest, Rules: []retrypolicy.Rule{
			{Kinds: retrypolicy.Kinds(k), OwnCount: true, Policy: retrypolicy.Incremental{Step: step}}}}
	}
	p := own(T, s, own(U, msec, retrypolicy.Incremental{Step: 1}))
	policytest.CheckInvalid(t, p, "")
	want := []time.Duration{s, msec, 3, 2 * s, 2 * msec, 6}
	for i, d := range kindsOf(p, T, U, N, T, U, N) {
		if d.Delay != want[i] {
			t.Errorf("question %d: %v, want after %v", i+1, d, want[i])
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
	mixed := decisions(p, policytest.DrawHalf, N, T, T, U, T, N, N)
	alone := decisions(decorrelated, policytest.DrawHalf, T, T, T) // 2, 3.5, 5.75 s
	for i, n := range []int{1, 2, 4} {
		if mixed[n].Delay != alone[i].Delay {
			t.Errorf("retry %d after %v, want %v: what others do between is no reason to forget", n+1, mixed[n].Delay,
				alone[i].Delay)
		}
	}
	other := policytest.Series(v2)
	for _, n := range []int{1, 6, 7} {
		if d := other.Decide(retrypolicy.Attempt{Retry: n, Rand: policytest.DrawHalf}); d != mixed[n-1] {
			t.Errorf("the other curve: retry %d %+v, want %+v", n, mixed[n-1], d)
		}
	}
}

// Each attempt belongs to one policy: the first to Default, a retry to the one that granted it.
func TestByKindGivesEachAttemptToOnePolicy(t *testing.T) {
	var calls []string
	named := func(name string) retrypolicy.Policy { return &noter{name: name, calls: &calls} }
	p := retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Throttled), Policy: named("one")},
			{Kinds: retrypolicy.Kinds(transport.Network), Policy: named("other")}},
		Default: named("default"),
	}
	series := policytest.Series(p)
	for i, k := range []transport.Kind{transport.Throttled, transport.Network, transport.Timeout} {
		a := retrypolicy.Attempt{Retry: i, Kind: k}
		series.Admit(a)
		series.Report(retrypolicy.VerdictAgain, a)
		series.Decide(policytest.Retried(a, i+1))
	}
	series.End()
	want := "default admit 0, default report 0, one decide 1, one admit 1, one report 1, other decide 2, " +
		"other admit 2, other report 2, default decide 3, one end, other end, default end"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("%s\nwant %s", got, want)
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
	} {
		policytest.CheckInvalid(t, c.policy, c.want)
	}
}
