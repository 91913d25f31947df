package retrypolicy

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// AWSFailure is what the AWS SDKs look at to judge a failure.
type AWSFailure struct {
	// Service is the service's short name, such as "dynamodb".
	Service string
	// Code is the error code of the answer, such as "ThrottlingException".
	Code string
	// Status is the HTTP status of the answer; 0 without an answer.
	Status int
	// Retryable and Throttling are how the service's model marks the failure.
	Retryable, Throttling bool
	// BadChecksum: the answer did not match its checksum (DynamoDB's CRC-32).
	BadChecksum bool
	// Origin and Fault are for AWSKotlinJudge.
	Origin AWSOrigin
	Fault  Fault
	// After is the wait that the service asked for; see AWSRetryAfter.
	After time.Duration
}

// AWSOrigin says where a failure was noticed.
type AWSOrigin uint8

const (
	FromElsewhere AWSOrigin = iota
	// FromService: the service answered with an error.
	FromService
	// FromLibrary: the client library itself failed.
	FromLibrary
)

// AWSRule is one row of AWSRules. Empty and zero fields fit everything.
type AWSRule struct {
	Service string
	Code    string
	Status  int
	// Checksum: only answers that did not match their checksum.
	Checksum bool
	Kind     transport.Kind
}

// AWSRules list the answers that are worth a retry, with their Kind; the first row that fits
// counts.
type AWSRules []AWSRule

// throttlingCodes are throttling at any status. botocore, Go, Java and JavaScript share them.
// PriorRequestNotComplete is in botocore's list of transient codes too.
var throttlingCodes = [...]string{
	"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "TooManyRequestsException",
	"ProvisionedThroughputExceededException",
	"TransactionInProgressException", "RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException",
	"RequestThrottled", "SlowDown",
	"PriorRequestNotComplete", "EC2ThrottledException",
}

// transientCodes are transient at any status. They are answers, not time-outs of ours, so their
// Kind is not Timeout and they do not cost as much.
var transientCodes = [...]string{"RequestTimeout", "RequestTimeoutException"}

// socketCodes are what the run-time system of JavaScript reports.
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

// legacyPairs are the services' own rows in the legacy mode.
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

// AWSStandardRules are those of the standard and adaptive modes: throttling by error code at any
// status, transient by error code or by status 500, 502, 503 and 504, an error of STS, and
// DynamoDB's checksum. Status 429 alone is not among them.
//
// Source: botocore, retries/standard.py; aws-sdk-go-v2, aws/retry, has the same codes and statuses.
func AWSStandardRules() AWSRules {
	r := codes(nil, throttlingCodes[:], 0, transport.Throttled)
	r = codes(r, transientCodes[:], 0, transport.Unavailable)
	r = statuses(r, transientStatus[:], transport.Unavailable)
	return append(r,
		AWSRule{Service: "sts", Code: "IDPCommunicationError", Kind: transport.Unavailable},
		AWSRule{Service: "dynamodb", Checksum: true, Kind: transport.Unavailable})
}

// AWSLegacyRules are those of botocore's legacy mode: status 500, 502, 503, 504, 509 and 429, five
// error codes at status 400, and rows for single services.
//
// Source: botocore, data/_retry.json.
func AWSLegacyRules() AWSRules {
	r := codes(nil, legacyThrottling[:], 400, transport.Throttled)
	r = append(r, legacyPairs[:]...)
	r = statuses(r, []int{429, 509}, transport.Throttled)
	return statuses(r, transientStatus[:], transport.Unavailable)
}

// AWSJSRules are those of aws-sdk-js-v3: the codes and statuses of the standard mode, status 429 as
// throttling, and the names of failures of the connection. Clock skew and expired signatures, which
// that SDK corrects and retries, are not among them.
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

// Judge returns what the rules say of f: Again with the Kind of the first row that fits, or of the
// service's model (Throttled, or Unavailable for Retryable); Fail if there is none.
func (r AWSRules) Judge(f AWSFailure) Info {
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
	return f.fail()
}

func (r *AWSRule) fits(f AWSFailure) bool {
	return (r.Service == "" || r.Service == f.Service) && (r.Code == "" || r.Code == f.Code) &&
		(r.Status == 0 || r.Status == f.Status) && (!r.Checksum || f.BadChecksum)
}

// AWSKotlinJudge goes by how a failure is marked, in the order of smithy-kotlin: a service's error
// that is retryable is of the side whose fault it is (Unavailable, Conflict), even where it is
// throttling too; the client library's own that is retryable is Conflict; then what is throttling
// is Throttled and what is retryable Network. All else fails.
//
// Source: smithy-kotlin, StandardRetryPolicy.
func AWSKotlinJudge(f AWSFailure) Info {
	switch {
	case f.Retryable && f.Origin == FromService && f.Fault == FaultServer:
		return f.again(transport.Unavailable)
	case f.Retryable && f.Origin == FromService && f.Fault == FaultClient:
		return f.again(transport.Conflict)
	case f.Retryable && f.Origin == FromLibrary:
		return f.again(transport.Conflict)
	case f.Throttling:
		return f.again(transport.Throttled)
	case f.Retryable:
		return f.again(transport.Network)
	}
	return f.fail()
}

func (f AWSFailure) again(kind transport.Kind) Info {
	return Info{Verdict: Again, Kind: kind, Safe: safe[kind], Fault: f.side(), After: f.After}
}

func (f AWSFailure) fail() Info { return Info{Verdict: Fail, Fault: f.side()} }

func (f AWSFailure) side() Fault {
	switch {
	case f.Fault != FaultUnknown:
		return f.Fault
	case f.Status >= 500:
		return FaultServer
	case f.Status >= 400:
		return FaultClient
	}
	return FaultUnknown
}

// AWSClassifier makes a Classifier of judge, which is AWSKotlinJudge or the method Judge of some
// AWSRules. of tells what is known about an error, and false where that is nothing; nil:
// AWSFailureOf. Errors that of knows nothing about, lost connections for one, are Undecided.
func AWSClassifier(judge func(AWSFailure) Info, of func(error) (AWSFailure, bool)) Classifier {
	if of == nil {
		of = AWSFailureOf
	}
	return func(err error) Info {
		if f, ok := of(err); ok {
			return judge(f)
		}
		return Info{}
	}
}

// AWSFailureOf reads an error's code and HTTP status from the methods ErrorCode() string and
// HTTPStatusCode() int, which the errors of aws-sdk-go-v2 have, anywhere in its chain. What it does
// not know is the service, the model's marks and the wait asked for; a function of one's own can
// add them.
func AWSFailureOf(err error) (f AWSFailure, ok bool) {
	transport.Walk(err, func(err error) bool {
		if e, is := err.(interface{ ErrorCode() string }); is && f.Code == "" {
			f.Code = e.ErrorCode()
		}
		if e, is := err.(interface{ HTTPStatusCode() int }); is && f.Status == 0 {
			f.Status = e.HTTPStatusCode()
		}
		return f.Code != "" && f.Status != 0
	})
	return f, f.Code != "" || f.Status != 0
}

// AWSRetryAfter reads the header x-amz-retry-after, which is a whole number of milliseconds.
// Whatever else it holds, also a negative number, counts as no wish: 0.
func AWSRetryAfter(header string) time.Duration {
	ms, err := strconv.ParseInt(header, 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	if ms > int64(longest/time.Millisecond) {
		return longest
	}
	return time.Duration(ms) * time.Millisecond
}
