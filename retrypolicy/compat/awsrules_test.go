//go:build !tinygo

package compat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// The entries of testdata/awsfailures.json, judged by the rules of each mode.
func TestAWSRules(t *testing.T) {
	text, err := os.ReadFile("testdata/awsfailures.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Name                         string
		Failure                      compat.AWSFailure
		Standard, Legacy, JavaScript string // a Kind; empty: not retried
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	standard, legacy, js := compat.AWSStandardRules(), compat.AWSLegacyRules(), compat.AWSJSRules()
	for _, c := range all {
		for _, r := range []struct {
			name  string
			rules compat.AWSRules
			want  string
		}{{"standard", standard, c.Standard}, {"legacy", legacy, c.Legacy}, {"JavaScript", js, c.JavaScript}} {
			want := retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
			if r.want != "" {
				want.Verdict, want.Kind = retrypolicy.VerdictAgain, vectorKinds[r.want]
			}
			if info := r.rules.Judge(c.Failure); info.Verdict != want.Verdict || info.Kind != want.Kind {
				t.Errorf("%s, %s %+v: %+v, want %+v", r.name, c.Name, c.Failure, info, want)
			}
		}
	}
	if len(all) < 40 {
		t.Errorf("only %d entries", len(all))
	}
}

func TestAWSRulesHaveEveryThrottlingCode(t *testing.T) {
	listed := strings.Fields(
		`Throttling ThrottlingException ThrottledException RequestThrottledException TooManyRequestsException
		ProvisionedThroughputExceededException
		TransactionInProgressException RequestLimitExceeded BandwidthLimitExceeded LimitExceededException
		RequestThrottled SlowDown PriorRequestNotComplete EC2ThrottledException`)
	for _, rules := range []compat.AWSRules{compat.AWSStandardRules(), compat.AWSJSRules()} {
		var got []string
		for _, r := range rules {
			if r.Kind == transport.Throttled {
				got = append(got, r.Codes...)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(listed) {
			t.Errorf("%v, want %v", got, listed)
		}
	}
}

func TestAWSKotlinJudge(t *testing.T) {
	type f = compat.AWSFailure
	for _, c := range []struct {
		name    string
		failure f
		want    transport.Kind
		fail    bool
	}{
		{"service, server fault", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultServer, Retryable: true},
			kServer, false},
		{"service, client fault", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultClient, Retryable: true},
			kClient, false},
		{"the side counts before throttling", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultServer,
			Retryable: true, Throttling: true}, kServer, false},
		{"library", f{Origin: compat.AWSFromLibrary, Retryable: true}, kClient, false},
		{"throttling", f{Throttling: true, Retryable: true}, kThrottle, false},
		{"service, throttling, not marked retryable", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultClient,
			Throttling: true}, kThrottle, false},
		{"elsewhere", f{Retryable: true}, kNetwork, false},
		{"service of unknown fault", f{Origin: compat.AWSFromService, Retryable: true}, kNetwork, false},
		{"nothing marked", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultServer, Status: 500}, transport.Unknown,
			true},
	} {
		info := compat.AWSKotlinJudge(c.failure)
		if info.Kind != c.want || (info.Verdict == retrypolicy.VerdictFail) != c.fail ||
			info.Verdict == retrypolicy.VerdictUndecided {
			t.Errorf("%s: %+v, want %v", c.name, info, c.want)
		}
	}
}

// The document differs from the code: it looks at throttling first, retries every error of the
// client library, and asks its hook last.
func TestAWSKotlinDocumentJudge(t *testing.T) {
	type f = compat.AWSFailure
	const again, failed, open = retrypolicy.VerdictAgain, retrypolicy.VerdictFail, retrypolicy.VerdictUndecided
	hook := func(f f) retrypolicy.Info {
		if f.Code != "Odd" {
			return retrypolicy.Info{}
		}
		return retrypolicy.Info{Verdict: again, Kind: kNetwork}
	}
	for _, c := range []struct {
		name    string
		failure f
		verdict retrypolicy.Verdict
		want    transport.Kind
	}{
		{"throttling counts before the side", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultServer,
			Retryable: true, Throttling: true}, again, kThrottle},
		{"service, server fault", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultServer, Retryable: true,
			Code: "Odd"}, again, kServer},
		{"service, client fault", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultClient, Retryable: true}, again,
			kClient},
		{"library", f{Origin: compat.AWSFromLibrary}, again, kClient},
		{"elsewhere", f{Retryable: true}, open, transport.Unknown},
		{"elsewhere, known to the hook", f{Code: "Odd"}, again, kNetwork},
		{"service, fault unknown", f{Origin: compat.AWSFromService, Retryable: true}, failed, transport.Unknown},
		{"service, not retryable", f{Origin: compat.AWSFromService, Fault: retrypolicy.FaultServer}, failed,
			transport.Unknown},
		{"service, known to the hook", f{Origin: compat.AWSFromService, Code: "Odd"}, again, kNetwork},
	} {
		if info := compat.AWSKotlinDocumentJudge(hook)(c.failure); info.Verdict != c.verdict || info.Kind != c.want {
			t.Errorf("%s: %+v, want %v, %v", c.name, info, c.verdict, c.want)
		}
	}
	if info := compat.AWSKotlinDocumentJudge(nil)(f{Origin: compat.AWSFromService, Code: "Odd"}); info.Verdict != failed {
		t.Errorf("without a hook: %+v", info)
	}
	bare := compat.AWSBotocoreRules().Judge(f{Status: 429})
	if bare.Verdict != retrypolicy.VerdictFail {
		t.Errorf("botocore retries a bare 429: %+v", bare)
	}
}

func TestAWSClassifierReadsErrorsOfTheSDK(t *testing.T) {
	judge := compat.NewAWSClassifier(compat.AWSStandardRules().Judge, nil)
	wrapped := fmt.Errorf("operation: %w", &policytest.HTTPError{Status: 503, Err: &policytest.APIError{Code: "SlowDown"}})
	for _, c := range []struct {
		err     error
		verdict retrypolicy.Verdict
		kind    transport.Kind
	}{
		{wrapped, retrypolicy.VerdictAgain, kThrottle},
		{&policytest.HTTPError{Status: 500, Err: errors.New("?")}, retrypolicy.VerdictAgain, kServer},
		{&policytest.HTTPError{Status: 404, Err: &policytest.APIError{Code: "NoSuchKey"}}, retrypolicy.VerdictFail,
			transport.Unknown},
		{&policytest.APIError{Code: "RequestTimeout"}, retrypolicy.VerdictAgain, kServer},
		{errors.New("connection reset"), retrypolicy.VerdictUndecided, transport.Unknown},
		{transport.Network, retrypolicy.VerdictUndecided, transport.Unknown},
	} {
		if got := judge(c.err); got.Verdict != c.verdict || got.Kind != c.kind {
			t.Errorf("%v: %+v", c.err, got)
		}
	}
	// A callback adds properties that the error lacks; an error that it does not know is left open.
	dynamo := compat.NewAWSClassifier(compat.AWSLegacyRules().Judge, func(err error) (compat.AWSFailure,
		bool) {
		f, ok := compat.AWSFailureOf(err)
		f.Service, f.After = "dynamodb", 20*time.Millisecond
		return f, ok
	})
	conflict := &policytest.HTTPError{Status: 409, Err: &policytest.APIError{Code: "ReplicatedWriteConflictException"}}
	if got := dynamo(conflict); got.Verdict != retrypolicy.VerdictAgain || got.Kind != kClient ||
		got.After != 20*time.Millisecond {
		t.Errorf("conflict: %+v", got)
	}
	if got := dynamo(transport.Forbidden); got != (retrypolicy.Info{}) {
		t.Errorf("fall-through: %+v", got)
	}
}

// told is an error that says its traits.
type told struct{ error }

func (told) RetrySafe() (safe, known bool) { return true, true }
func (told) Fault() retrypolicy.Fault      { return retrypolicy.FaultServer }
func (told) RetryAfter() time.Duration     { return time.Second }

func TestAWSClassifierAsksTheErrorItself(t *testing.T) {
	judge := compat.NewAWSClassifier(compat.AWSStandardRules().Judge, nil)
	want := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: kServer, After: time.Second}
	for _, err := range []error{told{errors.New("?")}, told{&policytest.HTTPError{Status: 404, Err: errors.New("?")}}} {
		if got := judge(err); got != want {
			t.Errorf("%v: %+v, want %+v", err, got, want)
		}
	}
	if f, ok := compat.AWSFailureOf(told{errors.New("?")}); !ok || f.Fault != retrypolicy.FaultServer {
		t.Errorf("%+v, %v", f, ok)
	}
}

func TestAWSRulesAllocateNothing(t *testing.T) {
	rules := compat.AWSLegacyRules()
	judge := compat.NewAWSClassifier(rules.Judge, nil)
	var err error = &policytest.HTTPError{Status: 409, Err: &policytest.APIError{Code: "ReplicatedWriteConflictException"}}
	var info retrypolicy.Info
	if allocs := testing.AllocsPerRun(100, func() { info = judge(err) }); allocs != 0 {
		t.Errorf("%v allocations; %+v", allocs, info)
	}
}
