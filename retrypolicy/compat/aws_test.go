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

// Two operations share one quota (vector N14). In any order, only the cost of A's first retry
// remains spent.
func TestAWSTwoOperationsShareAQuota(t *testing.T) {
	for _, order := range []string{"AABBA", "ABAAB", "BAABA", "ABABA", "AABAB"} {
		o := compat.AWSStandard.Options()
		o.Attempts = 5
		b := policytest.Bucketed(o, 500, 500)
		p := policytest.Must(compat.NewAWS(o))
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
		if p, err := compat.NewAWS(o); err != nil || !doesWait(p) {
			t.Errorf("%v: %v, or no delays", preset, err)
		}
		if o.Quota == nil {
			continue
		}
		if o.Quota.Bucket != nil || o.Quota.Success != 0 || o.Quota.First != 0 {
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
		{"nothing but back-off", func(o *compat.AWSOptions) { o.Backoff = retrypolicy.Backoff{} }, "Backoff.Base"},
		{"negative base", func(o *compat.AWSOptions) { o.Backoff = retrypolicy.Backoff{Base: -1} },
			"Base is negative"},
		{"negative base after throttling",
			func(o *compat.AWSOptions) { o.Throttled = retrypolicy.Backoff{Base: -1} }, "Base is negative"},
		{"negative Over", func(o *compat.AWSOptions) { o.Over = -1 }, "Over is negative"},
		{"bad quota", func(o *compat.AWSOptions) {
			o.Quota = &budget.QuotaOptions{Retry: 65536}
		}, "Retry is out of range"},
		{"bad MinRefund", func(o *compat.AWSOptions) {
			o.Quota = &budget.QuotaOptions{MinRefund: -1}
		}, "MinRefund is out of range"},
	} {
		o := compat.AWSPython.Options()
		c.change(o)
		_, err := compat.NewAWS(o)
		policytest.CheckRefusal(t, err, c.want)
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
