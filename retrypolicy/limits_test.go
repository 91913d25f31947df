package retrypolicy_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
)

// Shorthands of the tables.
const (
	msec = time.Millisecond
	s    = time.Second
)

var second = retrypolicy.Fixed{Delay: s}

func TestMaxAttemptsCountsTheFirst(t *testing.T) {
	for total := 1; total < 5; total++ {
		p := retrypolicy.MaxAttempts{Total: total, Policy: second}
		got := sequence(p, retrypolicy.Attempt{}, 9)
		if last := got[len(got)-1]; len(got) != total || last.Retry || last.Reason != retrypolicy.ReasonOutOfAttempts {
			t.Errorf("Total %d: %d retries, then %+v", total, len(got)-1, last)
		}
	}
	most := retrypolicy.MaxAttempts{Total: math.MaxInt32, Policy: second}
	checkDelay(t, most, math.MaxInt32-1, policytest.DrawZero, s)
	wantStop(t, most, retrypolicy.Attempt{Retry: math.MaxInt32}, retrypolicy.ReasonOutOfAttempts)
}

func TestMaxElapsedModes(t *testing.T) {
	strict := retrypolicy.MaxElapsed{Limit: 10 * s, Policy: second}
	lookAhead, shorten := strict, strict
	lookAhead.LookAhead, shorten.Shorten = true, true
	for _, c := range []struct {
		policy  retrypolicy.MaxElapsed
		elapsed time.Duration
		want    time.Duration // negative: stop
	}{
		{strict, 0, s},
		{strict, -time.Hour, s},
		{strict, 10 * s, s},
		{strict, 10*s + 1, -1},
		{lookAhead, 9 * s, s},
		{lookAhead, 9*s + 1, -1},
		{lookAhead, 10 * s, -1},
		{lookAhead, -time.Hour, s},
		{lookAhead, math.MaxInt64, -1},
		{shorten, 9 * s, s},
		{shorten, 9500 * msec, 500 * msec},
		{shorten, 10 * s, 0},
		{shorten, 10*s + 1, -1},
	} {
		d := c.policy.Decide(retrypolicy.Attempt{Retry: 1, Elapsed: c.elapsed})
		want := retrypolicy.Decision{Retry: true, Delay: c.want}
		if c.want < 0 {
			want = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime}
		}
		if d.Retry != want.Retry || d.Delay != want.Delay || !d.Retry && d.Reason != want.Reason {
			t.Errorf("%+v, elapsed %v: %+v, want %+v", c.policy, c.elapsed, d, want)
		}
	}
	inside := retrypolicy.MaxElapsed{Limit: s, LookAhead: true, Policy: retrypolicy.MaxAttempts{Total: 1,
		Policy: second}}
	wantStop(t, inside, retrypolicy.Attempt{Retry: 1},
		retrypolicy.ReasonOutOfAttempts) // not the limit's reason
}

func TestRetryAfterModes(t *testing.T) {
	const most = math.MaxInt64
	backoff := retrypolicy.Backoff{Base: s, Max: s}
	kotlin := retrypolicy.Backoff{Base: 50 * msec}
	for _, c := range []struct {
		name  string
		p     retrypolicy.RetryAfter
		after time.Duration
		want  time.Duration // negative: stop with Pushback
	}{
		{"floor: none asked", retrypolicy.RetryAfter{Policy: backoff}, 0, s},
		{"floor: longer", retrypolicy.RetryAfter{Policy: backoff}, 3 * s, 3 * s},
		{"floor: shorter", retrypolicy.RetryAfter{Policy: backoff}, msec, s},
		{"floor: days, limited", retrypolicy.RetryAfter{Max: time.Hour, Policy: backoff}, 99 * time.Hour, time.Hour},
		{"floor: days, not limited", retrypolicy.RetryAfter{Policy: backoff}, 99 * time.Hour, 99 * time.Hour},
		{"smithy-kotlin: 1500", retrypolicy.RetryAfter{Over: 5 * s, Policy: kotlin}, 1500 * msec, 1500 * msec},
		{"smithy-kotlin: 10000", retrypolicy.RetryAfter{Over: 5 * s, Policy: kotlin}, 10 * s, 5050 * msec},
		{"smithy-kotlin: none", retrypolicy.RetryAfter{Over: 5 * s, Policy: kotlin}, 0, 50 * msec},
		{"smithy-python: 3", retrypolicy.RetryAfter{Over: 5 * s, Policy: backoff}, 3 * s, 3 * s},
		{"smithy-python: 10", retrypolicy.RetryAfter{Over: 5 * s, Policy: backoff}, 10 * s, 6 * s},
		{"over: shorter", retrypolicy.RetryAfter{Over: 5 * s, Policy: backoff}, msec, s},
		{"over: no overflow", retrypolicy.RetryAfter{Over: most, Policy: retrypolicy.Fixed{Delay: most}}, most, most},
		{"told not to", retrypolicy.RetryAfter{Policy: backoff}, -1, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			policytest.CheckInvalid(t, c.p, "")
			a := retrypolicy.Attempt{Retry: 1, After: c.after}
			if c.want < 0 {
				wantStop(t, c.p, a, retrypolicy.ReasonPushback)
				return
			}
			if d := c.p.Decide(a); d != (retrypolicy.Decision{Retry: true, Delay: c.want}) {
				t.Errorf("%+v, want after %v", d, c.want)
			}
		})
	}
	inside := retrypolicy.RetryAfter{Policy: retrypolicy.MaxAttempts{Total: 1, Policy: second}}
	wantStop(t, inside, retrypolicy.Attempt{Retry: 1, After: time.Hour}, retrypolicy.ReasonOutOfAttempts)
}

func TestSafeOnly(t *testing.T) {
	p := retrypolicy.SafeOnly{Policy: second}
	for _, c := range []struct {
		safe  retrypolicy.Safe
		again bool
	}{{retrypolicy.SafeUnknown, false}, {retrypolicy.SafeNo, false}, {retrypolicy.SafeYes, true}} {
		d := p.Decide(retrypolicy.Attempt{Retry: 1, Safe: c.safe})
		if d.Retry != c.again || !c.again && d.Reason != retrypolicy.ReasonUnsafe {
			t.Errorf("safe %d: %+v", c.safe, d)
		}
	}
}

// noter is a policy with memory that records its calls.
type noter struct {
	name  string
	calls *[]string
	gate  retrypolicy.Decision // the zero Decision admits
}

func (r *noter) Begin(retrypolicy.Start) retrypolicy.Series { return noterSeries{r} }
func (r *noter) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	r.note("decide", a)
	return retrypolicy.Decision{Retry: true}
}
func (r *noter) note(call string, a retrypolicy.Attempt) {
	*r.calls = append(*r.calls, r.name+" "+call+" "+strconv.Itoa(a.Retry))
}

type noterSeries struct{ *noter }

func (r noterSeries) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	r.note("admit", a)
	if r.gate == (retrypolicy.Decision{}) {
		return retrypolicy.Decision{Retry: true}
	}
	return r.gate
}
func (r noterSeries) Report(_ retrypolicy.Verdict, a retrypolicy.Attempt) { r.note("report", a) }
func (r noterSeries) End()                                                { *r.calls = append(*r.calls, r.name+" end") }

func TestWrappersHaveTheSeriesOfTheInnerPolicy(t *testing.T) {
	for _, wrap := range []func(p retrypolicy.Policy) retrypolicy.Policy{
		func(p retrypolicy.Policy) retrypolicy.Policy { return retrypolicy.MaxAttempts{Total: 9, Policy: p} },
		func(p retrypolicy.Policy) retrypolicy.Policy { return retrypolicy.MaxElapsed{Limit: s, Policy: p} },
		func(p retrypolicy.Policy) retrypolicy.Policy { return retrypolicy.RetryAfter{Policy: p} },
		func(p retrypolicy.Policy) retrypolicy.Policy { return retrypolicy.SafeOnly{Policy: p} },
		func(p retrypolicy.Policy) retrypolicy.Policy { return retrypolicy.ByKind{Default: p} },
	} {
		var calls []string
		inner := &noter{name: "inner", calls: &calls,
			gate: retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota, Delay: s}}
		p := wrap(inner)
		policytest.CheckInvalid(t, p, "")
		a := retrypolicy.Attempt{Retry: 7, Safe: retrypolicy.SafeYes, Err: policytest.Lost}
		series := retrypolicy.BeginSeries(p, retrypolicy.Start{})
		if d := series.Admit(a); d != inner.gate {
			t.Errorf("%T: the inner policy's answer became %+v", p, d)
		}
		series.Report(retrypolicy.VerdictAgain, a)
		series.Decide(a)
		series.End()
		if got := strings.Join(calls, ", "); got != "inner admit 7, inner report 7, inner decide 7, inner end" {
			t.Errorf("%T: %s", p, got)
		}
		if s := retrypolicy.BeginSeries(wrap(second), retrypolicy.Start{}); s != nil {
			t.Errorf("%T around a policy without memory has a series", p)
		}
	}
}

func TestWrappersValidate(t *testing.T) {
	bad := retrypolicy.Fixed{Delay: -1}
	for _, c := range []struct {
		policy retrypolicy.Policy
		want   string
	}{
		{retrypolicy.MaxAttempts{Total: 1, Policy: second}, ""},
		{retrypolicy.MaxAttempts{Policy: second}, "MaxAttempts.Total"},
		{retrypolicy.MaxAttempts{Total: -1, Policy: second}, "MaxAttempts.Total"},
		{retrypolicy.MaxAttempts{Total: 1}, "MaxAttempts.Policy is nil"},
		{retrypolicy.MaxAttempts{Total: 1, Policy: bad}, "Fixed.Delay"},
		{retrypolicy.MaxElapsed{Limit: 1, Shorten: true, Policy: second}, ""},
		{retrypolicy.MaxElapsed{Policy: second}, "MaxElapsed.Limit"},
		{retrypolicy.MaxElapsed{Limit: -1, Policy: second}, "MaxElapsed.Limit"},
		{retrypolicy.MaxElapsed{Limit: 1, LookAhead: true, Shorten: true, Policy: second},
			"MaxElapsed.LookAhead and Shorten"},
		{retrypolicy.MaxElapsed{Limit: 1}, "MaxElapsed.Policy is nil"},
		{retrypolicy.MaxElapsed{Limit: 1, Policy: bad}, "Fixed.Delay"},
		{retrypolicy.RetryAfter{Max: -1, Policy: second}, "RetryAfter.Max"},
		{retrypolicy.RetryAfter{Over: -1, Policy: second}, "RetryAfter.Over is negative"},
		{retrypolicy.RetryAfter{}, "RetryAfter.Policy is nil"},
		{retrypolicy.RetryAfter{Policy: bad}, "Fixed.Delay"},
		{retrypolicy.SafeOnly{}, "SafeOnly.Policy is nil"},
		{retrypolicy.SafeOnly{Policy: bad}, "Fixed.Delay"},
		{retrypolicy.SafeOnly{Policy: retrypolicy.MaxElapsed{Limit: 1, Policy: retrypolicy.MaxAttempts{Total: 1,
			Policy: bad}}},
			"Fixed.Delay"},
	} {
		policytest.CheckInvalid(t, c.policy, c.want)
	}
}

// sequence returns the decisions of p about the first count retries of a series.
func sequence(p retrypolicy.Policy, a retrypolicy.Attempt, count int) []retrypolicy.Decision {
	var all []retrypolicy.Decision
	s := policytest.Series(p)
	defer s.End()
	for n := 1; n <= count; n++ {
		d := s.Decide(policytest.Retried(a, n))
		all = append(all, d)
		if !d.Retry {
			break
		}
	}
	return all
}

// wantStop expects p to stop for reason.
func wantStop(t *testing.T, p retrypolicy.Policy, a retrypolicy.Attempt, reason retrypolicy.Reason) {
	t.Helper()
	if d := p.Decide(a); d.Retry || d.Reason != reason || d.Delay != 0 {
		t.Errorf("%+v, %+v: %+v, want a stop with %v", p, a, d, reason)
	}
}
