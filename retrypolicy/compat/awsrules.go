package compat

import (
	"strconv"
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
	// After is the wait that the service asked for; see AWSRetryAfter.
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
	Code    string
	Status  int
	// Checksum matches only answers with a wrong checksum.
	Checksum bool
	// Unmodeled matches only errors that the service's model does not have.
	Unmodeled bool
	Kind      transport.Kind
}

// AWSRules list the answers that are retried, with their Kind; the first matching row counts.
type AWSRules []AWSRule

// throttlingCodes mean throttling at any status. botocore, Go, Java and JavaScript share them.
// PriorRequestNotComplete is in botocore's list of transient codes too.
var throttlingCodes = [...]string{
	"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
	"ProvisionedThroughputExceededException",
	"TransactionInProgressException", "RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException",
	"RequestThrottled", "SlowDown",
	"PriorRequestNotComplete", "EC2ThrottledException",
}

// transientCodes are transient at any status. They are answers, not local time-outs, so their Kind
// is not Timeout and they cost less.
var transientCodes = [...]string{"RequestTimeout", "RequestTimeoutException"}

// socketCodes are error codes of the JavaScript runtime.
var socketCodes = [...]string{
	"TimeoutError", "ECONNRESET", "ECONNREFUSED", "EPIPE", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND",
	"EAI_AGAIN",
}

var transientStatus = [...]int{500, 502, 503, 504}

// legacyThrottling are the codes that the legacy mode retries at status 400.
var legacyThrottling = [...]string{
	"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException",
	"ProvisionedThroughputExceededException",
}

// legacyPairs are the rows of single services in the legacy mode.
var legacyPairs = [...]AWSRule{
	{Service: "ec2", Code: "RequestLimitExceeded", Status: 503, Kind: transport.Throttled},
	{Service: "ec2", Code: "EC2ThrottledException", Status: 503, Kind: transport.Throttled},
	{Service: "kinesis", Code: "LimitExceededException", Status: 400, Kind: transport.Throttled},
	{Service: "sqs", Code: "RequestThrottled", Status: 403, Kind: transport.Throttled},
	{Service: "s3", Code: "RequestTimeout", Status: 400, Kind: transport.Unavailable},
	{Service: "s3", Code: "BadDigest", Status: 400, Kind: transport.Unavailable},
	{Service: "glacier", Code: "RequestTimeoutException", Status: 408, Kind: transport.Unavailable},
	{Service: "route53", Code: "Throttling", Status: 400, Kind: transport.Throttled},
	{Service: "route53", Code: "PriorRequestNotComplete", Status: 400, Kind: transport.Throttled},
	{Service: "dynamodb", Code: "TransactionInProgressException", Status: 400, Kind: transport.Throttled},
	{Service: "dynamodb", Code: "ReplicatedWriteConflictException", Status: 409, Kind: transport.Conflict},
	{Service: "dynamodb", Checksum: true, Kind: transport.Unavailable},
	{Service: "cloudsearch", Code: "BandwidthLimitExceeded", Status: 509, Kind: transport.Throttled},
	{Service: "sts", Code: "IDPCommunicationError", Status: 400, Kind: transport.Unavailable},
	{Service: "organizations", Code: "TooManyRequestsException", Status: 400, Kind: transport.Throttled},
}

// AWSStandardRules are the rules of the standard and adaptive modes: AWSBotocoreRules, and status
// 429 as throttling, whatever the error code, unless the service's model has the error.
//
// Source: aws-sdk-go-v2 v1.48, aws/retry.
func AWSStandardRules() AWSRules {
	return append(AWSRules{{Status: 429, Unmodeled: true, Kind: transport.Throttled}}, AWSBotocoreRules()...)
}

// AWSBotocoreRules are the rules of botocore's standard and adaptive modes:
//
//   - throttling by error code at any status
//   - transient by error code, or by status 500, 502, 503 and 504
//   - an error of STS
//   - DynamoDB's checksum
//
// Status 429 alone is not among them.
//
// Source: botocore, retries/standard.py.
func AWSBotocoreRules() AWSRules {
	r := codes(nil, throttlingCodes[:], 0, transport.Throttled)
	r = codes(r, transientCodes[:], 0, transport.Unavailable)
	r = statuses(r, transientStatus[:], transport.Unavailable)
	return append(r,
		AWSRule{Service: "sts", Code: "IDPCommunicationError", Kind: transport.Unavailable},
		AWSRule{Service: "dynamodb", Checksum: true, Kind: transport.Unavailable})
}

// AWSLegacyRules are the rules of botocore's legacy mode: status 500, 502, 503, 504, 509 and 429,
// five error codes at status 400, and rows for single services.
//
// Source: botocore, data/_retry.json.
func AWSLegacyRules() AWSRules {
	r := codes(nil, legacyThrottling[:], 400, transport.Throttled)
	r = append(r, legacyPairs[:]...)
	r = statuses(r, []int{429, 509}, transport.Throttled)
	return statuses(r, transientStatus[:], transport.Unavailable)
}

// AWSJSRules are the rules of aws-sdk-js-v3: the codes and statuses of the standard mode, status
// 429 as throttling, and the names of connection failures. They exclude clock skew and expired
// signatures, which that SDK corrects and retries.
//
// Source: smithy-typescript, service-error-classification.
func AWSJSRules() AWSRules {
	r := codes(nil, throttlingCodes[:], 0, transport.Throttled)
	r = statuses(r, []int{429}, transport.Throttled)
	r = codes(r, transientCodes[:], 0, transport.Unavailable)
	r = codes(r, socketCodes[:], 0, transport.Network)
	return statuses(r, transientStatus[:], transport.Unavailable)
}

func codes(r AWSRules, list []string, status int, kind transport.Kind) AWSRules {
	for _, code := range list {
		r = append(r, AWSRule{Code: code, Status: status, Kind: kind})
	}
	return r
}

func statuses(r AWSRules, list []int, kind transport.Kind) AWSRules {
	for _, status := range list {
		r = append(r, AWSRule{Status: status, Kind: kind})
	}
	return r
}

// Judge applies the rules to f. It returns Again with the Kind of the first matching row, or with
// the Kind of the service model's traits (Throttled, or Unavailable for Retryable). Without a match
// it returns Fail.
func (r AWSRules) Judge(f AWSFailure) retrypolicy.Info {
	if f.Retryable && f.Throttling {
		return f.again(transport.Throttled)
	}
	for i := range r {
		if r[i].fits(f) {
			return f.again(r[i].Kind)
		}
	}
	if f.Retryable {
		return f.again(transport.Unavailable)
	}
	return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
}

func (r *AWSRule) fits(f AWSFailure) bool {
	return (r.Service == "" || r.Service == f.Service) && (r.Code == "" || r.Code == f.Code) &&
		(r.Status == 0 || r.Status == f.Status) && (!r.Checksum || f.BadChecksum) &&
		(!r.Unmodeled || !f.Modeled)
}

// AWSKotlinDocumentJudge judges by the traits of a failure, in the order of smithy-kotlin's design
// document. AWSKotlinJudge is what its code does.
//
//  1. Throttling is Throttled, whoever failed.
//  2. A retryable error of the service has the Kind of the side at fault (Unavailable or Conflict).
//  3. An error of the client library is Conflict, retryable or not.
//  4. All other errors are left to hook, the document's evaluateOtherExceptions, if it is not nil.
//  5. After that, errors from elsewhere are Undecided, for the next classifier: the document does
//     not say how it recognizes lost connections. All others fail.
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

// AWSKotlinJudge judges by the traits of a failure, in the order of smithy-kotlin's code:
//
//  1. A retryable error of the service has the Kind of the side at fault (Unavailable or Conflict),
//     even if it is throttling too.
//  2. A retryable error of the client library is Conflict.
//  3. Any other throttling failure is Throttled.
//  4. Any other retryable failure is Network.
//  5. All other failures fail.
//
// Source: smithy-kotlin, StandardRetryPolicy.
func AWSKotlinJudge(f AWSFailure) retrypolicy.Info {
	switch {
	case f.Retryable && f.Origin == AWSFromService && f.Fault == retrypolicy.FaultServer:
		return f.again(transport.Unavailable)
	case f.Retryable && f.Origin == AWSFromService && f.Fault == retrypolicy.FaultClient:
		return f.again(transport.Conflict)
	case f.Retryable && f.Origin == AWSFromLibrary:
		return f.again(transport.Conflict)
	case f.Throttling:
		return f.again(transport.Throttled)
	case f.Retryable:
		return f.again(transport.Network)
	}
	return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
}

func (f AWSFailure) again(kind transport.Kind) retrypolicy.Info {
	return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: kind, Safe: safeAfter(kind), After: f.After}
}

// safeAfter reports whether an operation that failed with kind is safe to repeat.
func safeAfter(kind transport.Kind) retrypolicy.Safe {
	if kit.NotActed(kind) {
		return retrypolicy.SafeYes
	}
	return retrypolicy.SafeUnknown
}

// NewAWSClassifier makes a classifier from judge, which is AWSKotlinJudge, the result of
// AWSKotlinDocumentJudge or the method Judge of some AWSRules. of returns the properties of an
// error. It returns false for an error that it does not know, such as a lost connection, which is
// then Undecided. A nil of means AWSFailureOf.
func NewAWSClassifier(judge func(AWSFailure) retrypolicy.Info, of func(error) (AWSFailure,
	bool)) retrypolicy.Classifier {
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
// HTTPStatusCode() int, anywhere in its chain. The errors of aws-sdk-go-v2 have them. Errors of
// your own say the traits and the service's delay by the methods that retrypolicy.Classify asks. It
// cannot know the service; a function of the program can add that. It returns false for an error
// that says nothing.
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

// AWSRetryAfter reads the header x-amz-retry-after, a whole number of milliseconds. An invalid or
// negative value returns 0, which means none.
func AWSRetryAfter(header string) time.Duration {
	ms, err := strconv.ParseInt(header, 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	if ms > int64(kit.Longest/time.Millisecond) {
		return kit.Longest
	}
	return time.Duration(ms) * time.Millisecond
}
