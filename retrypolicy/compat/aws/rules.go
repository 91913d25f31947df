package aws

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Failure is what the AWS SDKs look at to judge a failure.
type Failure struct {
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
	// Origin and Fault are for KotlinJudge.
	Origin Origin
	Fault  retrypolicy.Fault
	// After is the wait that the service asked for; see RetryAfter.
	After time.Duration
}

// Origin says where a failure was noticed.
type Origin uint8

const (
	FromElsewhere Origin = iota
	// FromService: the service answered with an error.
	FromService
	// FromLibrary: the client library itself failed.
	FromLibrary
)

// Rule is one row of Rules. Empty and zero fields fit everything.
type Rule struct {
	Service string
	Code    string
	Status  int
	// Checksum: only answers that did not match their checksum.
	Checksum bool
	Kind     transport.Kind
}

// Rules list the answers that are worth a retry, with their Kind; the first row that fits
// counts.
type Rules []Rule

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
var legacyPairs = [...]Rule{
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

// StandardRules are those of the standard and adaptive modes: throttling by error code at any
// status, transient by error code or by status 500, 502, 503 and 504, an error of STS, and
// DynamoDB's checksum. Status 429 alone is not among them.
//
// Source: botocore, retries/standard.py; aws-sdk-go-v2, aws/retry, has the same codes and statuses.
func StandardRules() Rules {
	r := codes(nil, throttlingCodes[:], 0, transport.Throttled)
	r = codes(r, transientCodes[:], 0, transport.Unavailable)
	r = statuses(r, transientStatus[:], transport.Unavailable)
	return append(r,
		Rule{Service: "sts", Code: "IDPCommunicationError", Kind: transport.Unavailable},
		Rule{Service: "dynamodb", Checksum: true, Kind: transport.Unavailable})
}

// LegacyRules are those of botocore's legacy mode: status 500, 502, 503, 504, 509 and 429, five
// error codes at status 400, and rows for single services.
//
// Source: botocore, data/_retry.json.
func LegacyRules() Rules {
	r := codes(nil, legacyThrottling[:], 400, transport.Throttled)
	r = append(r, legacyPairs[:]...)
	r = statuses(r, []int{429, 509}, transport.Throttled)
	return statuses(r, transientStatus[:], transport.Unavailable)
}

// JSRules are those of aws-sdk-js-v3: the codes and statuses of the standard mode, status 429 as
// throttling, and the names of failures of the connection. Clock skew and expired signatures, which
// that SDK corrects and retries, are not among them.
//
// Source: smithy-typescript, service-error-classification.
func JSRules() Rules {
	r := codes(nil, throttlingCodes[:], 0, transport.Throttled)
	r = statuses(r, []int{429}, transport.Throttled)
	r = codes(r, transientCodes[:], 0, transport.Unavailable)
	r = codes(r, socketCodes[:], 0, transport.Network)
	return statuses(r, transientStatus[:], transport.Unavailable)
}

func codes(r Rules, list []string, status int, kind transport.Kind) Rules {
	for _, code := range list {
		r = append(r, Rule{Code: code, Status: status, Kind: kind})
	}
	return r
}

func statuses(r Rules, list []int, kind transport.Kind) Rules {
	for _, status := range list {
		r = append(r, Rule{Status: status, Kind: kind})
	}
	return r
}

// Judge returns what the rules say of f: Again with the Kind of the first row that fits, or of the
// service's model (Throttled, or Unavailable for Retryable); Fail if there is none.
func (r Rules) Judge(f Failure) retrypolicy.Info {
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

func (r *Rule) fits(f Failure) bool {
	return (r.Service == "" || r.Service == f.Service) && (r.Code == "" || r.Code == f.Code) &&
		(r.Status == 0 || r.Status == f.Status) && (!r.Checksum || f.BadChecksum)
}

// KotlinJudge goes by how a failure is marked, in the order of smithy-kotlin: a service's error
// that is retryable is of the side whose fault it is (Unavailable, Conflict), even where it is
// throttling too; the client library's own that is retryable is Conflict; then what is throttling
// is Throttled and what is retryable Network. All else fails.
//
// Source: smithy-kotlin, StandardRetryPolicy.
func KotlinJudge(f Failure) retrypolicy.Info {
	switch {
	case f.Retryable && f.Origin == FromService && f.Fault == retrypolicy.FaultServer:
		return f.again(transport.Unavailable)
	case f.Retryable && f.Origin == FromService && f.Fault == retrypolicy.FaultClient:
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

func (f Failure) again(kind transport.Kind) retrypolicy.Info {
	return retrypolicy.Info{Verdict: retrypolicy.Again, Kind: kind, Safe: safeAfter(kind), Fault: f.side(), After: f.After}
}

// safeAfter says whether an operation that failed with kind is safe to repeat.
func safeAfter(kind transport.Kind) retrypolicy.Safe {
	if failure.NotActed(kind) {
		return retrypolicy.SafeYes
	}
	return retrypolicy.SafeUnknown
}

func (f Failure) fail() retrypolicy.Info {
	return retrypolicy.Info{Verdict: retrypolicy.Fail, Fault: f.side()}
}

func (f Failure) side() retrypolicy.Fault {
	switch {
	case f.Fault != retrypolicy.FaultUnknown:
		return f.Fault
	case f.Status >= 500:
		return retrypolicy.FaultServer
	case f.Status >= 400:
		return retrypolicy.FaultClient
	}
	return retrypolicy.FaultUnknown
}

// Classifier makes a Classifier of judge, which is KotlinJudge or the method Judge of some
// Rules. of tells what is known about an error, and false where that is nothing; nil:
// FailureOf. Errors that of knows nothing about, lost connections for one, are Undecided.
func Classifier(judge func(Failure) retrypolicy.Info, of func(error) (Failure, bool)) retrypolicy.Classifier {
	if of == nil {
		of = FailureOf
	}
	return func(err error) retrypolicy.Info {
		if f, ok := of(err); ok {
			return judge(f)
		}
		return retrypolicy.Info{}
	}
}

// FailureOf reads an error's code and HTTP status from the methods ErrorCode() string and
// HTTPStatusCode() int, which the errors of aws-sdk-go-v2 have, anywhere in its chain. What it does
// not know is the service, the model's marks and the wait asked for; a function of the program can
// add them.
func FailureOf(err error) (f Failure, ok bool) {
	errchain.Any(err, func(err error) bool {
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

// RetryAfter reads the header x-amz-retry-after, which is a whole number of milliseconds.
// Whatever else it holds, also a negative number, counts as none: 0.
func RetryAfter(header string) time.Duration {
	ms, err := strconv.ParseInt(header, 10, 64)
	if err != nil || ms < 0 {
		return 0
	}
	if ms > int64(delay.Longest/time.Millisecond) {
		return delay.Longest
	}
	return time.Duration(ms) * time.Millisecond
}
