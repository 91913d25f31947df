//go:build !tinygo

package compat_test

import (
	"errors"
	"math"
	"testing"

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
	kNetwork  = transport.Network
	kClient   = transport.Conflict
)

// Two operations share one quota (vector N14). In any order, only the cost of A's first retry
// remains spent.
func TestAWSTwoOperationsShareAQuota(t *testing.T) {
	for _, order := range []string{"AABBA", "ABAAB", "BAABA", "ABABA", "AABAB"} {
		o := compat.AWSStandard.Options()
		o.Attempts = 5
		b := policytest.Bucketed(o, 500, 500)
		p := policytest.Must(compat.NewAWS(o))
		series := map[rune]retrypolicy.Series{'A': policytest.Series(p), 'B': policytest.Series(p)}
		toFail := map[rune]int{'A': 2, 'B': 1}
		failed := map[rune]int{}
		for i, who := range order {
			a := policytest.Retried(policytest.At(0), failed[who])
			if d := series[who].Admit(a); !d.Retry || d.Delay != 0 {
				t.Fatalf("%s step %d: Admit: %v", order, i+1, d)
			}
			if failed[who] == toFail[who] {
				series[who].Report(retrypolicy.VerdictSucceed, a)
				continue
			}
			series[who].Report(retrypolicy.VerdictAgain, policytest.As(a, kServer))
			failed[who]++
			a.Rand = policytest.DrawLast
			if d := series[who].Decide(policytest.Retried(policytest.As(a, kServer), failed[who])); !d.Retry {
				t.Errorf("%s step %d: %v", order, i+1, d)
			}
		}
		if got := b.Tokens(policytest.Epoch); got != 486 {
			t.Errorf("%s: quota %d at the end, want 486", order, got)
		}
	}
}

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
