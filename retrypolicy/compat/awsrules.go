package compat

import (
	"slices"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// AWSFailure holds the properties by which the AWS SDKs judge a failure.
type AWSFailure struct {
	// Service is the service's short name, such as "dynamodb".
	Service string
	// Code is the error code of the answer, such as "ThrottlingException".
	Code string
	// Status is the HTTP status of the answer; 0 without an answer.
	Status int
	// Retryable and Throttling are the traits of the failure in the service's model.
	Retryable, Throttling bool
	// Modeled: the service's model has a type for the error, whose traits decide about a status 429.
	Modeled bool
	// BadChecksum: the answer did not match its checksum (DynamoDB's CRC-32).
	BadChecksum bool
	// Origin and Fault are for AWSKotlinJudge and AWSKotlinDocumentJudge.
	Origin AWSOrigin
	Fault  retrypolicy.Fault
	// After is the wait that the service asked for, in the header x-amz-retry-after.
	After time.Duration
}

// AWSOrigin says where a failure was detected.
type AWSOrigin uint8

const (
	AWSFromElsewhere AWSOrigin = iota
	// AWSFromService: the service answered with an error.
	AWSFromService
	// AWSFromLibrary: the client library itself failed.
	AWSFromLibrary
)

// AWSRule is one row of AWSRules. Empty and zero fields match everything.
type AWSRule struct {
	Service string
	// Codes and Statuses match if one of them is the failure's.
	Codes    []string
	Statuses []int
	// Checksum matches only answers with a wrong checksum.
	Checksum bool
	// Unmodeled matches only errors that the service's model does not have.
	Unmodeled bool
	Kind      transport.Kind
}

// AWSRules list the answers that are retried, with their Kind; the first matching row counts.
type AWSRules []AWSRule

// The rows that several lists share. transientRule has answers, not local time-outs, so their Kind
// is not Timeout and they cost less.
var (
	throttlingRule = AWSRule{Kind: transport.Throttled, Codes: []string{
		"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
		"ProvisionedThroughputExceededException", "TransactionInProgressException", "RequestLimitExceeded",
		"BandwidthLimitExceeded", "LimitExceededException", "RequestThrottled", "SlowDown", "PriorRequestNotComplete",
		"EC2ThrottledException"}}
	transientRule = AWSRule{Kind: transport.Unavailable, Codes: []string{"RequestTimeout", "RequestTimeoutException"}}
	brokenRule    = AWSRule{Kind: transport.Unavailable, Statuses: []int{500, 502, 503, 504}}
	checksumRule  = AWSRule{Kind: transport.Unavailable, Service: "dynamodb", Checksum: true}
)

// AWSStandardRules are the rules of the standard and adaptive modes: AWSBotocoreRules, and status
// 429 as throttling, whatever the error code, unless the service's model has the error.
//
// Source: aws-sdk-go-v2 v1.48, aws/retry.
func AWSStandardRules() AWSRules {
	return append(AWSRules{{Statuses: []int{429}, Unmodeled: true, Kind: transport.Throttled}}, AWSBotocoreRules()...)
}

// AWSBotocoreRules are the rules of botocore's standard and adaptive modes. Status 429 alone is not
// among them.
//
// Source: botocore, retries/standard.py.
func AWSBotocoreRules() AWSRules {
	return AWSRules{throttlingRule, transientRule, brokenRule,
		{Service: "sts", Codes: []string{"IDPCommunicationError"}, Kind: transport.Unavailable}, checksumRule}
}

// AWSLegacyRules are the rules of botocore's legacy mode.
//
// Source: botocore, data/_retry.json.
func AWSLegacyRules() AWSRules {
	rules := AWSRules{{Kind: transport.Throttled, Statuses: []int{400}, Codes: []string{"Throttling",
		"ThrottlingException", "ThrottledException", "RequestThrottledException", "ProvisionedThroughputExceededException"}}}
	for _, r := range []struct {
		service, code string
		status        int
		kind          transport.Kind
	}{
		{"ec2", "RequestLimitExceeded", 503, transport.Throttled},
		{"ec2", "EC2ThrottledException", 503, transport.Throttled},
		{"kinesis", "LimitExceededException", 400, transport.Throttled},
		{"sqs", "RequestThrottled", 403, transport.Throttled},
		{"s3", "RequestTimeout", 400, transport.Unavailable},
		{"s3", "BadDigest", 400, transport.Unavailable},
		{"glacier", "RequestTimeoutException", 408, transport.Unavailable},
		{"route53", "Throttling", 400, transport.Throttled},
		{"route53", "PriorRequestNotComplete", 400, transport.Throttled},
		{"dynamodb", "TransactionInProgressException", 400, transport.Throttled},
		{"dynamodb", "ReplicatedWriteConflictException", 409, transport.Conflict},
		{"cloudsearch", "BandwidthLimitExceeded", 509, transport.Throttled},
		{"sts", "IDPCommunicationError", 400, transport.Unavailable},
		{"organizations", "TooManyRequestsException", 400, transport.Throttled},
	} {
		rules = append(rules, AWSRule{Service: r.service, Codes: []string{r.code}, Statuses: []int{r.status}, Kind: r.kind})
	}
	return append(rules, checksumRule, AWSRule{Statuses: []int{429, 509}, Kind: transport.Throttled}, brokenRule)
}

// AWSJSRules are the rules of aws-sdk-js-v3, without clock skew and expired signatures, which that
// SDK corrects and retries.
//
// Source: smithy-typescript, service-error-classification.
func AWSJSRules() AWSRules {
	return AWSRules{throttlingRule, {Statuses: []int{429}, Kind: transport.Throttled}, transientRule,
		{Kind: transport.Network, Codes: []string{"TimeoutError", "ECONNRESET", "ECONNREFUSED", "EPIPE", "ETIMEDOUT",
			"EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN"}}, brokenRule}
}

// Judge applies the rules to f. It returns Again with the Kind of the first matching row, or with
// the Kind of the service model's traits (Throttled, or Unavailable for Retryable). Without a match
// it returns Fail.
func (r AWSRules) Judge(f AWSFailure) retrypolicy.Info {
	if f.Retryable && f.Throttling {
		return f.again(transport.Throttled)
	}
	for i := range r {
		if r[i].fits(&f) {
			return f.again(r[i].Kind)
		}
	}
	if f.Retryable {
		return f.again(transport.Unavailable)
	}
	return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
}

func (r *AWSRule) fits(f *AWSFailure) bool {
	return (r.Service == "" || r.Service == f.Service) && (r.Codes == nil || slices.Contains(r.Codes, f.Code)) &&
		(r.Statuses == nil || slices.Contains(r.Statuses, f.Status)) && (!r.Checksum || f.BadChecksum) &&
		(!r.Unmodeled || !f.Modeled)
}

// AWSKotlinDocumentJudge judges by the traits of a failure, in the order of smithy-kotlin's design
// document: throttling, an error of the service by the side at fault, any error of the client
// library, and then hook, the document's evaluateOtherExceptions, if it is not nil. After that,
// errors from elsewhere, such as lost connections, are Undecided; all others fail.
//
// Source: smithy-kotlin, docs/design/retries.md.
func AWSKotlinDocumentJudge(hook func(AWSFailure) retrypolicy.Info) func(AWSFailure) retrypolicy.Info {
	return func(f AWSFailure) retrypolicy.Info {
		service := f.Origin == AWSFromService && f.Retryable
		switch {
		case f.Throttling:
			return f.again(transport.Throttled)
		case service && f.Fault == retrypolicy.FaultServer:
			return f.again(transport.Unavailable)
		case service && f.Fault == retrypolicy.FaultClient, f.Origin == AWSFromLibrary:
			return f.again(transport.Conflict)
		}
		var info retrypolicy.Info
		if hook != nil {
			info = hook(f)
		}
		if info.Verdict == retrypolicy.VerdictUndecided && f.Origin != AWSFromElsewhere {
			info.Verdict = retrypolicy.VerdictFail
		}
		return info
	}
}

// AWSKotlinJudge judges by the traits of a failure, in the order of smithy-kotlin's code: a
// retryable error of the service by the side at fault, even if it is throttling too; one of the
// client library; throttling; and any other retryable failure, as Network. All other failures fail.
//
// Source: smithy-kotlin, StandardRetryPolicy.
func AWSKotlinJudge(f AWSFailure) retrypolicy.Info {
	service := f.Origin == AWSFromService && f.Retryable
	switch {
	case service && f.Fault == retrypolicy.FaultServer:
		return f.again(transport.Unavailable)
	case service && f.Fault == retrypolicy.FaultClient, f.Origin == AWSFromLibrary && f.Retryable:
		return f.again(transport.Conflict)
	case f.Throttling:
		return f.again(transport.Throttled)
	case f.Retryable:
		return f.again(transport.Network)
	}
	return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
}

func (f AWSFailure) again(kind transport.Kind) retrypolicy.Info {
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: kind, After: f.After}
	if kit.NotActed(kind) {
		info.Safe = retrypolicy.SafeYes
	}
	return info
}

// NewAWSClassifier makes a classifier from judge, which is AWSKotlinJudge, the result of
// AWSKotlinDocumentJudge or the method Judge of some AWSRules. of returns the properties of an
// error; nil means AWSFailureOf. An error that it does not know (not ok) is Undecided.
func NewAWSClassifier(
	judge func(AWSFailure) retrypolicy.Info, of func(error) (f AWSFailure, ok bool),
) retrypolicy.Classifier {
	if of == nil {
		of = AWSFailureOf
	}
	return func(err error) retrypolicy.Info {
		if f, ok := of(err); ok {
			return judge(f)
		}
		return retrypolicy.Info{}
	}
}

// AWSFailureOf reads an error's code and HTTP status from the methods ErrorCode() string and
// HTTPStatusCode() int in its chain, as errors of aws-sdk-go-v2 have them, and the traits and the
// delay from the methods that retrypolicy.Classify asks. Without any of these ok is false.
func AWSFailureOf(err error) (f AWSFailure, ok bool) {
	errchain.Any(err, func(err error) bool {
		if e, is := err.(interface{ ErrorCode() string }); is && f.Code == "" {
			f.Code = e.ErrorCode()
		}
		if e, is := err.(interface{ HTTPStatusCode() int }); is && f.Status == 0 {
			f.Status = e.HTTPStatusCode()
		}
		if e, is := err.(interface{ RetrySafe() (safe, known bool) }); is && !f.Retryable {
			f.Retryable, _ = e.RetrySafe()
		}
		if e, is := err.(interface{ Throttling() bool }); is && !f.Throttling {
			f.Throttling = e.Throttling()
		}
		if e, is := err.(interface{ Fault() retrypolicy.Fault }); is && f.Fault == retrypolicy.FaultUnknown {
			f.Fault = e.Fault()
		}
		return false
	})
	ok = f != AWSFailure{}
	f.After = kit.RetryAfter(err)
	return f, ok
}
