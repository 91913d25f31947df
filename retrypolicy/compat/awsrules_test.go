//go:build !tinygo

package compat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func TestAWSRules(t *testing.T) {
	standard, legacy, js := compat.AWSStandardRules(), compat.AWSLegacyRules(), compat.AWSJSRules()
	const no = transport.Unknown
	type f = compat.AWSFailure
	for _, c := range []struct {
		name                 string
		failure              f
		standard, legacy, js transport.Kind // no: not retried
	}{
		{"throttled", f{Status: 400, Code: "Throttling"}, kThrottle, kThrottle, kThrottle},
		{"throttled", f{Status: 400, Code: "ThrottledException"}, kThrottle, kThrottle, kThrottle},
		{"throttled", f{Status: 400, Code: "TooManyRequestsException"}, kThrottle, no, kThrottle},
		{"throttled", f{Status: 400, Code: "TransactionInProgressException"}, kThrottle, no, kThrottle},
		{"throttled", f{Status: 509, Code: "BandwidthLimitExceeded"}, kThrottle, kThrottle, kThrottle},
		{"throttled", f{Status: 403, Code: "RequestThrottled"}, kThrottle, no, kThrottle},
		{"throttled", f{Status: 503, Code: "SlowDown"}, kThrottle, kServer, kThrottle},
		{"throttled", f{Status: 502, Code: "EC2ThrottledException"}, kThrottle, kServer, kThrottle},
		{"not throttled", f{Status: 400, Code: "NotAThrottlingError"}, no, no, no},
		{"not throttled, transient", f{Status: 500}, kServer, kServer, kServer},
		{"transient", f{Status: 400, Code: "RequestTimeout"}, kServer, no, kServer},
		{"transient", f{Status: 400, Code: "RequestTimeoutException"}, kServer, no, kServer},
		{"transient and throttling", f{Status: 400, Code: "PriorRequestNotComplete"}, kThrottle, no, kThrottle},
		{"transient", f{Status: 500, Code: "InternalServiceError"}, kServer, kServer, kServer},
		{"transient", f{Status: 502}, kServer, kServer, kServer},
		{"transient", f{Status: 503}, kServer, kServer, kServer},
		{"transient", f{Status: 504}, kServer, kServer, kServer},
		{"neither", f{Status: 501}, no, no, no},
		{"success", f{Status: 200}, no, no, no},
		{"429 alone", f{Status: 429}, kThrottle, kThrottle, kThrottle},
		{"509 alone", f{Status: 509}, no, kThrottle, no},
		{"legacy code at another status", f{Status: 413, Code: "Throttling"}, kThrottle, no, kThrottle},
		{"a socket's failure", f{Code: "ECONNRESET"}, no, no, kNetwork},
		{"a failed look-up", f{Code: "EAI_AGAIN"}, no, no, kNetwork},
		{"sts", f{Service: "sts", Status: 400, Code: "IDPCommunicationError"}, kServer, kServer, no},
		{"not sts", f{Service: "s3", Status: 400, Code: "IDPCommunicationError"}, no, no, no},
		{"checksum", f{Service: "dynamodb", Status: 200, BadChecksum: true}, kServer, kServer, no},
		{"checksum elsewhere", f{Service: "s3", Status: 200, BadChecksum: true}, no, no, no},
		{"ec2", f{Service: "ec2", Status: 503, Code: "RequestLimitExceeded"}, kThrottle, kThrottle, kThrottle},
		{"kinesis", f{Service: "kinesis", Status: 400, Code: "LimitExceededException"}, kThrottle, kThrottle, kThrottle},
		{"not kinesis", f{Service: "iam", Status: 400, Code: "LimitExceededException"}, kThrottle, no, kThrottle},
		{"sqs", f{Service: "sqs", Status: 403, Code: "RequestThrottled"}, kThrottle, kThrottle, kThrottle},
		{"s3", f{Service: "s3", Status: 400, Code: "BadDigest"}, no, kServer, no},
		{"s3", f{Service: "s3", Status: 400, Code: "RequestTimeout"}, kServer, kServer, kServer},
		{"glacier", f{Service: "glacier", Status: 408, Code: "RequestTimeoutException"}, kServer, kServer, kServer},
		{"glacier, other status", f{Service: "glacier", Status: 400, Code: "RequestTimeoutException"}, kServer, no, kServer},
		{"route53", f{Service: "route53", Status: 400, Code: "PriorRequestNotComplete"}, kThrottle, kThrottle, kThrottle},
		{"dynamodb conflict", f{Service: "dynamodb", Status: 409, Code: "ReplicatedWriteConflictException"}, no, kClient, no},
		{"dynamodb transaction", f{Service: "dynamodb", Status: 400, Code: "TransactionInProgressException"}, kThrottle,
			kThrottle, kThrottle},
		{"cloudsearch", f{Service: "cloudsearch", Status: 509, Code: "BandwidthLimitExceeded"}, kThrottle, kThrottle,
			kThrottle},
		{"organizations", f{Service: "organizations", Status: 400, Code: "TooManyRequestsException"}, kThrottle, kThrottle,
			kThrottle},
		{"modelled", f{Status: 400, Code: "Odd", Retryable: true}, kServer, kServer, kServer},
		{"modelled as throttling", f{Status: 400, Code: "Odd", Retryable: true, Throttling: true}, kThrottle, kThrottle,
			kThrottle},
		{"the mark throttling alone", f{Status: 400, Code: "Odd", Throttling: true}, no, no, no},
	} {
		for _, r := range []struct {
			name  string
			rules compat.AWSRules
			want  transport.Kind
		}{{"standard", standard, c.standard}, {"legacy", legacy, c.legacy}, {"JavaScript", js, c.js}} {
			info := r.rules.Judge(c.failure)
			verdict := retrypolicy.VerdictAgain
			if r.want == no {
				verdict = retrypolicy.VerdictFail
			}
			if info.Verdict != verdict || info.Kind != r.want {
				t.Errorf("%s, %s %+v: verdict %d, %v; want %d, %v", r.name, c.name, c.failure, info.Verdict, info.Kind, verdict,
					r.want)
			}
		}
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
