package httpretry_test

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestHTTPStatus(t *testing.T) {
	const (
		again   = retrypolicy.VerdictAgain
		fail    = retrypolicy.VerdictFail
		succeed = retrypolicy.VerdictSucceed
	)
	for _, c := range []struct {
		status  int
		verdict retrypolicy.Verdict
		kind    transport.Kind
		safe    retrypolicy.Safe
	}{
		{0, again, transport.Network, retrypolicy.SafeUnknown},
		{-1, again, transport.Network, retrypolicy.SafeUnknown},
		{99, again, transport.Network, retrypolicy.SafeUnknown},
		{100, succeed, 0, 0},
		{200, succeed, 0, 0},
		{204, succeed, 0, 0},
		{304, succeed, 0, 0},
		{399, succeed, 0, 0},
		{400, fail, transport.Invalid, retrypolicy.SafeYes},
		{401, fail, transport.Unauthorized, retrypolicy.SafeYes},
		{403, fail, transport.Forbidden, retrypolicy.SafeYes},
		{404, fail, transport.NotFound, retrypolicy.SafeYes},
		{408, again, transport.Timeout, retrypolicy.SafeUnknown},
		{409, fail, transport.Conflict, retrypolicy.SafeYes},
		{412, fail, transport.Conflict, retrypolicy.SafeYes},
		{413, fail, transport.TooLarge, retrypolicy.SafeYes},
		{418, fail, transport.Invalid, retrypolicy.SafeYes},
		{425, again, transport.Unavailable, retrypolicy.SafeYes},
		{429, again, transport.Throttled, retrypolicy.SafeYes},
		{499, fail, transport.Invalid, retrypolicy.SafeYes},
		{500, again, transport.Unavailable, retrypolicy.SafeUnknown},
		{501, fail, transport.Unsupported, retrypolicy.SafeYes},
		{502, again, transport.Unavailable, retrypolicy.SafeUnknown},
		{503, again, transport.Unavailable, retrypolicy.SafeUnknown},
		{504, again, transport.Timeout, retrypolicy.SafeUnknown},
		{509, again, transport.Throttled, retrypolicy.SafeYes},
		{599, again, transport.Unavailable, retrypolicy.SafeUnknown},
	} {
		want := retrypolicy.Info{Verdict: c.verdict, Kind: c.kind, Safe: c.safe}
		if got := httpretry.Status(c.status); got != want {
			t.Errorf("%d: %+v, want %+v", c.status, got, want)
		}
	}
}

// A retried status must have a Kind that errfilter retries too; otherwise a policy by Kind would
// disagree with it.
func TestHTTPStatusAgreesWithTheFilter(t *testing.T) {
	for code := 0; code < 1000; code++ {
		info := httpretry.Status(code)
		if info.Verdict == retrypolicy.VerdictUndecided {
			t.Errorf("%d is undecided", code)
		}
		if info.Verdict != retrypolicy.VerdictAgain {
			continue
		}
		if got := retrypolicy.Classify(&transport.Error{Kind: info.Kind}); got.Verdict != retrypolicy.VerdictAgain {
			t.Errorf("%d is tried again and its Kind %v is not", code, info.Kind)
		}
	}
}

func TestClassifyHTTP(t *testing.T) {
	hub := &transport.Error{Kind: transport.Quota, Err: &policytest.StatusError{Status: 429, After: 0}}
	for _, c := range []struct {
		name string
		err  error
		want retrypolicy.Info
	}{
		{"nil", nil, retrypolicy.Info{}},
		{"no status", policytest.Lost, retrypolicy.Info{}},
		{"a status below 400 is not why there is an error", policytest.Status(200), retrypolicy.Info{}},
		{"permanent", retrypolicy.Permanent(policytest.Status(503)), retrypolicy.Info{}},
		{"plain", policytest.Status(404), httpretry.Status(404)},
		{"wrapped", hub, httpretry.Status(429)},
		{"with a wait", &policytest.StatusError{Status: 503, After: s}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Kind:  transport.Unavailable,
			After: s}},
		{"with a wait, wrapped", &transport.Error{Err: &policytest.StatusError{Status: 429, After: s}},
			retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
				Kind: transport.Throttled, Safe: retrypolicy.SafeYes, After: s}},
		{"asks not to", &policytest.StatusError{Status: 503, After: -1}, retrypolicy.Info{Verdict: retrypolicy.VerdictAgain,
			Kind:  transport.Unavailable,
			After: -1}},
	} {
		if got := httpretry.Classify(c.err); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestClassifyStatuses(t *testing.T) {
	list := []int{404, 202}
	judge := httpretry.ClassifyStatuses(list...)
	list[0] = 503 // the classifier must have its own copy
	for _, c := range []struct {
		err  error
		want retrypolicy.Verdict
		kind transport.Kind
	}{
		{policytest.Status(404), retrypolicy.VerdictAgain, transport.NotFound},
		{policytest.Status(202), retrypolicy.VerdictAgain, transport.Unknown},
		{policytest.Status(503), retrypolicy.VerdictFail, transport.Unavailable},
		{policytest.Status(0), retrypolicy.VerdictFail, transport.Network},
		{policytest.Status(200), retrypolicy.VerdictUndecided, transport.Unknown},
		{policytest.Lost, retrypolicy.VerdictUndecided, transport.Unknown},
		{retrypolicy.Permanent(policytest.Status(404)), retrypolicy.VerdictUndecided, transport.Unknown},
	} {
		if got := judge(c.err); got.Verdict != c.want || got.Kind != c.kind {
			t.Errorf("%v: %+v, want %v, %v", c.err, got, c.want, c.kind)
		}
	}
	if got := judge(&policytest.StatusError{Status: 404, After: time.Minute}); got.After != time.Minute {
		t.Errorf("After is %v", got.After)
	}
}

// Shorthands of the tables.
const (
	s = time.Second
)

var second = retrypolicy.Fixed{Delay: s}
