//go:build !tinygo

package compat_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// Short names for the vectors' answers.
const (
	kServer   = transport.Unavailable // status 500, 502, ...
	kThrottle = transport.Throttled   // "Throttling"
	kTimeout  = transport.Timeout
	kNetwork  = transport.Network
	kClient   = transport.Conflict
)

// step is one line of a published vector: an outcome and the decision about it.
type step struct {
	kind    transport.Kind // of the failure
	success bool
	after   time.Duration
	safe    retrypolicy.Safe
	stop    retrypolicy.Reason // no retry; ByPolicy (0) stands for a retry
	delay   time.Duration
	quota   int // after the step; -1: there is none
}

func try(t *testing.T, what string, s *retrypolicy.Operation, now time.Time, draw uint64, st step) {
	t.Helper()
	if d, err := s.Admit(now, draw); err != nil || !d.Retry || d.Delay != 0 {
		t.Fatalf("%s: Admit: %v, %v", what, d, err)
	}
	if st.success {
		if err := s.Success(now); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return
	}
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: st.kind, After: st.after, Safe: st.safe}
	d, err := s.Failure(now, draw, info, st.kind)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if d.Retry != (st.stop == 0) || d.Reason != st.stop || d.Delay != st.delay {
		t.Errorf("%s: %v (delay %v), want retry %v, %v, delay %v", what, d, d.Delay, st.stop == 0, st.stop, st.delay)
	}
}

// sequence is one operation from an SDK's own tests.
type sequence struct {
	id     string
	preset func() *compat.AWSOptions
	tokens int
	steps  []step
}

func preS() *compat.AWSOptions { // the settings of the vectors S1 to S5
	o := compat.AWSKotlin.Options()
	o.Backoff = retrypolicy.Backoff{Base: time.Second, Max: 20 * time.Second, Jitter: retrypolicy.JitterFull}
	o.Throttled = nil
	return o
}

func fail(k transport.Kind, quota int, delay time.Duration) step {
	return step{kind: k, quota: quota, delay: delay}
}

func end(k transport.Kind, why retrypolicy.Reason, quota int, delay time.Duration) step {
	return step{kind: k, stop: why, quota: quota, delay: delay}
}

func retryAfter(after time.Duration, quota int, delay time.Duration) step {
	return step{kind: kServer, after: after, quota: quota, delay: delay}
}

func ok(quota int) step { return step{success: true, quota: quota} }

func sum(o func() *compat.AWSOptions, attempts int) func() *compat.AWSOptions {
	return func() *compat.AWSOptions {
		set := o()
		set.Attempts = attempts
		return set
	}
}

// play compares the policies with the sequences, with the largest draw.
func play(t *testing.T, sequences []sequence) {
	for _, c := range sequences {
		t.Run(c.id, func(t *testing.T) {
			o := c.preset()
			b := policytest.Bucketed(t, o, 500, c.tokens)
			series := retrypolicy.Begin(policytest.NewAWS(t, o), "", policytest.Epoch)
			for i, st := range c.steps {
				what := fmt.Sprintf("step %d", i+1)
				try(t, what, &series, policytest.Epoch, policytest.DrawLast, st) // drawLast: U = 1
				if got := b.Tokens(policytest.Epoch); got != st.quota {
					t.Fatalf("%s: quota %d, want %d", what, got, st.quota)
				}
			}
		})
	}
}

func TestAWSPublishedSequences(t *testing.T) {
	play(t, []sequence{
		{"S1", preS, 500, []step{fail(kServer, 495, s), fail(kServer, 490, 2*s), ok(495)}},
		{"S2", preS, 500, []step{fail(kServer, 495, s), fail(kServer, 490, 2*s),
			end(kServer, retrypolicy.ReasonOutOfAttempts, 490,
				0)}},
		{"S4", preS, 0, []step{end(kServer, retrypolicy.ReasonOutOfQuota, 0, s)}},
		{"S5", sum(preS, 5), 500, []step{
			fail(kServer, 495, s), fail(kServer, 490, 2*s), fail(kServer, 485, 4*s), fail(kServer, 480, 8*s),
			end(kServer, retrypolicy.ReasonOutOfAttempts, 480, 0),
		}},
		{"N1", compat.AWSStandard.Options, 500, []step{fail(kServer, 486, 50*ms), fail(kServer, 472, 100*ms), ok(486)}},
		{"N3", compat.AWSStandard.Options,
			14, []step{fail(kServer, 0, 50*ms), end(kServer, retrypolicy.ReasonOutOfQuota, 0,
				100*ms)}},
		{"N5", sum(compat.AWSStandard.Options, 5), 500, []step{
			fail(kServer, 486, 50*ms), fail(kServer, 472, 100*ms), fail(kServer, 458, 200*ms), fail(kServer, 444, 400*ms),
			end(kServer, retrypolicy.ReasonOutOfAttempts, 444, 0),
		}},
		{"N7", sum(compat.AWSStandard.Options, 5),
			20, []step{fail(kServer, 6, 50*ms), end(kServer, retrypolicy.ReasonOutOfQuota, 6,
				100*ms)}},
		{"N8", compat.AWSStandard.Options, 500, []step{fail(kThrottle, 495, s), ok(500)}},
		{"N9", compat.AWSStandard.Options, 500, []step{retryAfter(compat.AWSRetryAfter("1500"), 486, 1500*ms), ok(500)}},
		{"N9 JavaScript", compat.AWSStandard.Options,
			500, []step{retryAfter(compat.AWSRetryAfter("1500"), 486, 1500*ms), ok(500)}},
		{"N11", compat.AWSStandard.Options, 500, []step{retryAfter(compat.AWSRetryAfter("10000"), 486, 5050*ms), ok(500)}},
		{"N12", compat.AWSStandard.Options, 500, []step{retryAfter(compat.AWSRetryAfter("invalid"), 486, 50*ms), ok(500)}},
		{"N16, the refusal", compat.AWSStandard.Options, 0, []step{end(kServer, retrypolicy.ReasonOutOfQuota, 0, 50*ms)}},
		{"N17, the refusal", compat.AWSStandard.Options, 0, []step{end(kThrottle, retrypolicy.ReasonOutOfQuota, 0, s)}},
		{"N17, the refusal, Go", compat.AWSStandard.Options,
			0, []step{end(kThrottle, retrypolicy.ReasonOutOfQuota, 0, s)}},
		{"kotlin, transient, before 2026", compat.AWSKotlin.Options, 500, []step{fail(kNetwork, 490, 10*ms)}},
		{"kotlin, transient, 2026", compat.AWSStandard.Options, 500, []step{fail(kNetwork, 486, 50*ms)}},
		{"kotlin, throttling, before 2026", compat.AWSKotlin.Options, 500, []step{fail(kThrottle, 490, s),
			fail(kThrottle, 480, 1500*ms)}},
		{"kotlin, client side", compat.AWSKotlin.Options,
			500, []step{fail(kClient, 495, 10*ms), fail(kServer, 490, 15*ms)}},
		{"botocore, retry then 2xx", compat.AWSBotocore2025.Options, 500, []step{fail(kServer, 495, s), ok(500)}},
		{"botocore, retry then 500", sum(compat.AWSBotocore2025.Options, 2), 500, []step{fail(kServer, 495, s),
			end(kServer, retrypolicy.ReasonOutOfAttempts, 495, 0)}},
		{"botocore, a success without a retry", compat.AWSBotocore2025.Options, 495, []step{ok(496)}},
		{"botocore, time-out", compat.AWSBotocore2025.Options, 500, []step{fail(kTimeout, 490, s), ok(500)}},
		{"botocore, no time-out", compat.AWSBotocore2025.Options,
			500, []step{fail(kThrottle, 495, s), fail(kNetwork, 490, 2*s),
				ok(495)}},
		{"botocore does not read the Retry-After", compat.AWSBotocore2025.Options, 500, []step{retryAfter(7*s, 495, s)}},
		{"botocore 2026, retry then 2xx", compat.AWSStandard.Options, 500, []step{fail(kServer, 486, 50*ms), ok(500)}},
		{"botocore 2026, a success without a retry", compat.AWSStandard.Options, 486, []step{ok(487)}},
		{"DynamoDB", compat.AWSDynamoDB.Options, 500, []step{
			fail(kServer, 486, 25*ms), fail(kThrottle, 481, 2*s), fail(kServer, 467, 100*ms),
			end(kServer, retrypolicy.ReasonOutOfAttempts, 467, 0),
		}},
		{"python: safe, unknown", compat.AWSPython.Options, 28, []step{
			{kind: kTimeout, safe: retrypolicy.SafeYes, quota: 14, delay: 50 * ms},
			{kind: kServer, stop: retrypolicy.ReasonUnsafe, quota: 14},
		}},
		{"python: quota", sum(compat.AWSPython.Options, 5), 28, []step{
			{kind: kServer, safe: retrypolicy.SafeYes, quota: 14, delay: 50 * ms}, {kind: kServer, safe: retrypolicy.SafeYes,
				quota: 0, delay: 100 * ms},
			{kind: kServer, safe: retrypolicy.SafeYes, quota: 0, delay: 200 * ms, stop: retrypolicy.ReasonOutOfQuota},
		}},
	})
}

func TestAWSPublishedSequencesOfSingleSDKs(t *testing.T) {
	play(t, []sequence{
		{"python: quota 0", compat.AWSPython.Options, 0, []step{{kind: kServer, safe: retrypolicy.SafeYes, delay: 50 * ms,
			stop: retrypolicy.ReasonOutOfQuota}}},
		{"python: unsafe", compat.AWSPython.Options, 0, []step{{kind: kServer, safe: retrypolicy.SafeNo,
			stop: retrypolicy.ReasonUnsafe}}},
		{"python: 500 500 200", compat.AWSPython.Options, 500, []step{
			{kind: kServer, safe: retrypolicy.SafeYes, quota: 486, delay: 50 * ms}, {kind: kServer, safe: retrypolicy.SafeYes,
				quota: 472, delay: 100 * ms}, ok(486),
		}},
		{"python: time-out twice, 200", compat.AWSPython.Options, 500, []step{
			{kind: kTimeout, safe: retrypolicy.SafeYes, quota: 486, delay: 50 * ms}, {kind: kTimeout, safe: retrypolicy.SafeYes,
				quota: 472, delay: 100 * ms}, ok(486),
		}},
		{"python: 14, two failures", compat.AWSPython.Options, 14, []step{
			{kind: kServer, safe: retrypolicy.SafeYes, quota: 0, delay: 50 * ms}, {kind: kServer, safe: retrypolicy.SafeYes,
				delay: 100 * ms, stop: retrypolicy.ReasonOutOfQuota},
		}},
		{"JavaScript, transient x7", sum(compat.AWSJS2025.Options, 8), 500, []step{
			fail(kNetwork, 490, 100*ms), fail(kTimeout, 480, 200*ms), fail(kServer, 470, 400*ms), fail(kServer, 460, 800*ms),
			fail(kServer, 450, 1600*ms),
			fail(kServer, 440, 3200*ms), fail(kServer, 430, 6400*ms),
		}},
		{"JavaScript, throttling x7", sum(compat.AWSJS2025.Options, 8), 500, []step{
			fail(kThrottle, 495, 500*ms), fail(kThrottle, 490, s), fail(kThrottle, 485, 2*s), fail(kThrottle, 480, 4*s),
			fail(kThrottle, 475, 8*s),
			fail(kThrottle, 470, 16*s), fail(kThrottle, 465, 20*s),
		}},
		{"JavaScript, tT", compat.AWSJS2025.Options, 500, []step{fail(kServer, 490, 100*ms), fail(kThrottle, 485, s)}},
		{"JavaScript, Tt", compat.AWSJS2025.Options,
			500, []step{fail(kThrottle, 495, 500*ms), fail(kServer, 485, 200*ms)}},
		{"JavaScript 2026, TTttttT", sum(compat.AWSStandard.Options, 8), 500, []step{
			fail(kThrottle, 495, s), fail(kThrottle, 490, 2*s), fail(kServer, 476, 200*ms), fail(kServer, 462, 400*ms),
			fail(kServer, 448, 800*ms),
			fail(kServer, 434, 1600*ms), fail(kThrottle, 429, 20*s),
		}},
		{"Java, Retry-After has no ceiling", compat.AWSJava.Options, 500, []step{retryAfter(time.Hour, 495, time.Hour),
			retryAfter(ms, 490, 200*ms), ok(495)}},
		{"Java 2026", compat.AWSJava2026.Options,
			500, []step{retryAfter(time.Hour, 486, time.Hour), fail(kThrottle, 481, 2*s),
				ok(486)}},
		{"Java legacy, throttling is free and gives back 1", compat.AWSJavaLegacy.Options, 400,
			[]step{fail(kThrottle, 400, 500*ms), ok(401)}},
		{"Java legacy", compat.AWSJavaLegacy.Options, 500, []step{
			fail(kServer, 495, 100*ms), fail(kThrottle, 495, s), fail(kServer, 490, 400*ms),
			end(kServer, retrypolicy.ReasonOutOfAttempts, 490, 0),
		}},
		{"Go", compat.AWSGo2025.Options, 500, []step{fail(kTimeout, 490, 2*s), fail(kServer, 485, 4*s), ok(491)}},
	})
}

// Two operations share one quota (vector N14). In any order, only the cost of A's first retry
// remains spent.
func TestAWSTwoOperationsShareAQuota(t *testing.T) {
	for _, order := range []string{"AABBA", "ABAAB", "BAABA", "ABABA", "AABAB"} {
		o := compat.AWSStandard.Options()
		o.Attempts = 5
		b := policytest.Bucketed(t, o, 500, 500)
		p := policytest.NewAWS(t, o)
		series := map[rune]*retrypolicy.Operation{'A': ptr(retrypolicy.Begin(p, "", policytest.Epoch)),
			'B': ptr(retrypolicy.Begin(p, "", policytest.Epoch))}
		toFail := map[rune]int{'A': 2, 'B': 1}
		failed := map[rune]int{}
		for i, who := range order {
			st := step{success: true}
			if failed[who] < toFail[who] {
				st = step{kind: kServer, delay: 50 * ms << failed[who]}
				failed[who]++
			}
			try(t, fmt.Sprintf("%s step %d", order, i+1), series[who], policytest.Epoch, policytest.DrawLast, st)
		}
		if got := b.Tokens(policytest.Epoch); got != 486 {
			t.Errorf("%s: quota %d at the end, want 486", order, got)
		}
	}
}

func ptr[T any](v T) *T { return &v }

func TestAWSPresetsAreValidAndLeaveTheQuotaTheirSize(t *testing.T) {
	for _, preset := range compat.AWSPresets() {
		o := preset.Options()
		if err := retrypolicy.Validate(policytest.NewAWS(t, o)); err != nil {
			t.Errorf("%v: %v", preset, err)
		}
		if o.Quota == nil {
			continue
		}
		if o.Quota.Size != 0 || o.Quota.Success != 0 || o.Quota.First != 0 || o.Quota.Refill != 0 {
			t.Errorf("%v: %+v: want the common 500 tokens, 1 for a success, no refill", preset, o.Quota)
		}
		if again := preset.Options(); again.Quota == o.Quota || &again.Quota.Costs[0] == &o.Quota.Costs[0] {
			t.Errorf("%v: two calls share the options of the quota", preset)
		}
	}
}

func TestNewAWSRefusesBadOptions(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*compat.AWSOptions)
		want   string
	}{
		{"no back-off", func(o *compat.AWSOptions) { o.Backoff = nil }, "AWSOptions.Backoff is nil"},
		{"no attempts", func(o *compat.AWSOptions) { o.Attempts = 0 }, "Total is below 1"},
		{"negative attempts", func(o *compat.AWSOptions) { o.Attempts = -1 }, "Total is below 1"},
		{"negative base", func(o *compat.AWSOptions) { o.Backoff = retrypolicy.Backoff{Base: -1} }, "Base is negative"},
		{"negative base after throttling",
			func(o *compat.AWSOptions) { o.Throttled = retrypolicy.Backoff{Base: -1} }, "Base is negative"},
		{"negative Over", func(o *compat.AWSOptions) { o.Over = -1 }, "Over is negative"},
		{"bad quota", func(o *compat.AWSOptions) {
			o.Quota = &budget.QuotaOptions{Size: -1}
		}, "size is out of range"},
		{"bad MinRefund", func(o *compat.AWSOptions) {
			o.Quota = &budget.QuotaOptions{MinRefund: -1}
		}, "MinRefund is out of range"},
		{"negative Max of Go", func(o *compat.AWSOptions) {
			o.Backoff = compat.AWSGoBackoff{Max: -1}
		}, "AWSGoBackoff.Max is not positive"},
	} {
		o := compat.AWSPython.Options()
		c.change(o)
		p, err := compat.NewAWS(o)
		if p != nil || !errors.Is(err, transport.Invalid) || !policytest.Contains(err, c.want) {
			t.Errorf("%s: %v, %v", c.name, p, err)
		}
	}
}

// endless returns the policy of o without the quota and the limit of attempts, which would end a
// long series.
func endless(o *compat.AWSOptions) retrypolicy.Policy {
	o.Attempts, o.Quota = math.MaxInt32, nil
	p, err := compat.NewAWS(o)
	if err != nil {
		panic(err)
	}
	return p
}

// delays returns the delays of consecutive retries of one series.
func delays(p retrypolicy.Policy, kind transport.Kind, draw uint64, first, count int) []time.Duration {
	var out []time.Duration
	series := policytest.Series(p)
	for n := first; n < first+count; n++ {
		out = append(out, series.Decide(retrypolicy.Attempt{Retry: n, Kind: kind, Rand: draw}).Delay)
	}
	return out
}

func TestAWSPublishedDelays(t *testing.T) {
	curve := func(base, most time.Duration, j retrypolicy.Jitter) retrypolicy.Backoff {
		return retrypolicy.Backoff{Base: base, Max: most, Jitter: j}
	}
	kotlin := compat.AWSKotlin.Options().Backoff
	for _, c := range []struct {
		name   string
		policy retrypolicy.Policy
		kind   transport.Kind
		draw   uint64
		first  int
		want   []float64 // ms
	}{
		{"kotlin", curve(10*ms, 0, retrypolicy.JitterNone), kServer, policytest.DrawLast, 1, []float64{10, 20, 40, 80, 160,
			320}},
		{"kotlin, cap", curve(10*ms, 100*ms, retrypolicy.JitterNone), kServer, policytest.DrawLast, 1,
			[]float64{10, 20, 40, 80,
				100,
				100}},
		{"kotlin, throttling", compat.AWSStandard.Options().Throttled, kThrottle, policytest.DrawLast, 1, []float64{1000,
			2000, 4000}},
		{"kotlin, factor 1.5", kotlin, kServer, policytest.DrawLast, 1, []float64{10, 15, 22.5, 33.75}},
		{"kotlin, the cap of the preset", kotlin, kServer, policytest.DrawLast, 30, []float64{20000, 20000}},
		{"botocore", compat.AWSBotocore2025.Options().Backoff, kServer, policytest.DrawLast, 1, []float64{1000, 2000, 4000,
			8000, 16000, 20000,
			20000, 20000, 20000}},
		{"botocore legacy", compat.AWSLegacy.Options().Backoff, kServer, policytest.DrawLast, 1, []float64{1000,
			2000, 4000, 8000,
			16000, 32000, 64000}},
		{"botocore legacy, base 3, third retry", curve(3*s, 0, retrypolicy.JitterNone), kServer, 0, 3, []float64{12000}},
		{"botocore legacy, DynamoDB", compat.AWSLegacyDynamoDB.Options().Backoff, kServer, 0, 1,
			[]float64{50, 100, 200, 400, 800, 1600, 3200, 6400, 12800}},
		{"Go, U=0", compat.AWSGo2025.Options().Backoff, kServer, 0, 1, []float64{0, 0, 0, 0, 20000, 20000}},
		{"Go, U=.5", compat.AWSGo2025.Options().Backoff, kServer, policytest.DrawHalf, 1, []float64{1000, 2000, 4000, 8000,
			20000, 20000}},
		{"Go, a short Max", compat.AWSGoBackoff{Max: s / 2}, kServer, 0, 1, []float64{500, 500}},
		{"Go, no Max", compat.AWSGoBackoff{}, kServer, policytest.DrawHalf, 1, []float64{0, 0}},
		{"python none", curve(2*s, 20*s, retrypolicy.JitterNone), kServer, policytest.DrawHalf, 0, []float64{0, 2000, 4000,
			8000, 16000,
			20000, 20000}},
		{"python none, the cap counts first", curve(4*s, 2*s, retrypolicy.JitterNone), kServer, policytest.DrawHalf, 0,
			[]float64{0, 2000, 2000, 2000}},
		{"python none, fractions", curve(23400*ms, 76500*ms, retrypolicy.JitterNone), kServer, policytest.DrawHalf, 0,
			[]float64{0, 23400, 46800, 76500, 76500}},
		{"python full", curve(2*s, 20*s, retrypolicy.JitterFull), kServer, policytest.DrawHalf, 0, []float64{0, 1000, 2000,
			4000, 8000,
			10000, 10000}},
		{"python full, cap", curve(5*s, 10*s, retrypolicy.JitterFull), kServer, policytest.DrawHalf, 0,
			[]float64{0, 2500, 5000, 5000,
				5000}},
		{"python equal", curve(2*s, 20*s, retrypolicy.JitterEqual), kServer, policytest.DrawHalf, 0, []float64{0, 1500, 3000,
			6000,
			12000, 15000, 15000}},
		{"python decorrelated", curve(2*s, 20*s, retrypolicy.JitterDecorrelatedSmithy), kServer, policytest.DrawHalf, 0,
			[]float64{0, 5000, 9500, 16250, 20000, 20000}},
		{"python full, base 0", curve(0, 5*s, retrypolicy.JitterFull), kServer, policytest.DrawHalf, 0,
			[]float64{0, 0, 0, 0}},
		{"python simple, U=0", compat.AWSPythonSimple.Options().Backoff, kServer, 0, 1, []float64{12.5, 25, 50}},
		{"Java legacy, throttling, U=0", compat.AWSJavaLegacy.Options().Throttled,
			kThrottle, 0, 1, []float64{250, 500, 1000}},
		{"a count past all caps", endless(compat.AWSStandard.Options()), kServer, policytest.DrawLast, math.MaxInt32 - 1,
			[]float64{20000}},
	} {
		got := delays(c.policy, c.kind, c.draw, c.first, len(c.want))
		for i, want := range c.want {
			if w := time.Duration(want * float64(ms)); got[i] != w {
				t.Errorf("%s: retry %d: %v, want %v", c.name, c.first+i, got[i], w)
			}
		}
	}
}

func TestAWSRetryAfterIsApplied(t *testing.T) {
	flat := func(o *compat.AWSOptions, base time.Duration) retrypolicy.Policy {
		o.Backoff = retrypolicy.Backoff{Base: base}
		return policytest.NewAWS(t, o)
	}
	for _, c := range []struct {
		name        string
		policy      retrypolicy.Policy
		after, want time.Duration
	}{
		{"kotlin 1500", flat(compat.AWSStandard.Options(), 50*ms), 1500 * ms, 1500 * ms},
		{"kotlin 10000", flat(compat.AWSStandard.Options(), 50*ms), 10 * time.Second, 5050 * ms},
		{"kotlin none", flat(compat.AWSStandard.Options(), 50*ms), 0, 50 * ms},
		{"kotlin below the delay", flat(compat.AWSStandard.Options(), 50*ms), ms, 50 * ms},
		{"python 3 s", flat(compat.AWSPython.Options(), time.Second), 3 * time.Second, 3 * time.Second},
		{"python 10 s", flat(compat.AWSPython.Options(), time.Second), 10 * time.Second, 6 * time.Second},
		{"python, the longest", flat(compat.AWSPython.Options(), time.Second), math.MaxInt64, 6 * time.Second},
	} {
		d := c.policy.Decide(retrypolicy.Attempt{Retry: 1, Kind: kServer, Safe: retrypolicy.SafeYes, After: c.after})
		if !d.Retry || d.Delay != c.want {
			t.Errorf("%s: %v, want %v", c.name, d, c.want)
		}
	}
}

// smithy-python, at most 2, 3 or 10 attempts: exactly one retry less.
func TestAWSAttemptsAreTotal(t *testing.T) {
	for _, total := range []int{1, 2, 3, 10} {
		for _, preset := range []func() *compat.AWSOptions{compat.AWSPython.Options, compat.AWSPythonSimple.Options} {
			o := preset()
			o.Attempts = total
			s := retrypolicy.Begin(policytest.NewAWS(t, o), "", policytest.Epoch)
			for i := 1; i < total; i++ {
				if d := failOnce(t, &s); !d.Retry {
					t.Errorf("total %d: retry %d refused: %v", total, i, d)
				}
			}
			if d := failOnce(t, &s); d.Retry || d.Reason != retrypolicy.ReasonOutOfAttempts || d.Delay != 0 {
				t.Errorf("total %d: %v after all tries", total, d)
			}
		}
	}
}

func failOnce(t *testing.T, s *retrypolicy.Operation) retrypolicy.Decision {
	t.Helper()
	if d, err := s.Admit(policytest.Epoch, 0); err != nil || !d.Retry {
		t.Fatal(d, err)
	}
	d, err := s.Failure(policytest.Epoch, 0, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: kServer,
		Safe: retrypolicy.SafeYes},
		kServer)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAWSDecisionsAllocateNothing(t *testing.T) {
	for _, preset := range compat.AWSPresets() {
		o := preset.Options()
		o.Attempts = math.MaxInt32
		p := policytest.NewAWS(t, o)
		n := 0
		series := policytest.Series(p)
		if allocs := testing.AllocsPerRun(200, func() {
			n++
			a := retrypolicy.Attempt{Retry: n % 9, Kind: kThrottle, Safe: retrypolicy.SafeYes, Now: policytest.Epoch,
				Rand: uint64(n) << 50, Err: kThrottle}
			_ = series.Admit(a)
			series.Report(retrypolicy.VerdictAgain, a)
			sink = series.Decide(a)
		}); allocs != 0 {
			t.Errorf("%v: %v allocations per decision", preset, allocs)
		}
	}
}

// One line says what boto3 says in one dict.
func TestAWSMode(t *testing.T) {
	for _, c := range []struct {
		mode     string
		attempts int
		runs     int
		wrong    string
	}{
		{"standard", 0, 3, ""}, {"standard", 5, 5, ""}, {"adaptive", 2, 2, ""}, {"legacy", 0, 5, ""},
		{"Standard", 0, 0, "give standard, adaptive or legacy"}, {"standard", -1, 0, "MaxAttempts.Total"},
	} {
		p, err := compat.AWSMode(c.mode, c.attempts)
		if policytest.CheckRefusal(t, err, c.wrong); c.wrong != "" {
			continue
		}
		runs, _, err := policytest.Retries(t, retrypolicy.Retrier{Policy: p}, transport.Unavailable)
		if runs != c.runs || !errors.Is(err, retrypolicy.ReasonOutOfAttempts) {
			t.Errorf("%s, %d: %d attempts, %v", c.mode, c.attempts, runs, err)
		}
	}
}
