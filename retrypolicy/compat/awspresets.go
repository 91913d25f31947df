package compat

import (
	"math/bits"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// AWSPreset is the published retry behaviour of an AWS SDK. The names of the constants begin with
// AWS:
//
//	preset           tries  first delay    after      the service's  a retry costs, of
//	                                       Throttled  delay          500 tokens
//	Standard         3      50 ms          1 s        + 5 s          14; Throttled 5
//	DynamoDB         4      25 ms          1 s        + 5 s          14; Throttled 5
//	Python           3      50 ms          1 s        + 5 s          14; Throttled 5
//	PythonSimple     5      25 ms, equal              ignored        no quota
//	Kotlin           3      10 ms, by 1.5  1 s        + 5 s          5; Throttled, Network, Timeout 10
//	Botocore2025     3      1 s                       ignored        5; Timeout 10
//	Legacy           5      1 s, no cap               ignored        no quota
//	LegacyDynamoDB   10     50 ms, exact              ignored        no quota
//	Go2025           3      2 s, AWSGoBackoff         ignored        5; Timeout 10
//	Java             3      100 ms         1 s        any            5
//	Java2026         3      50 ms          1 s        any            14; Throttled 5
//	JavaLegacy       4      100 ms         500 ms,    any            5; Throttled 0
//	                                       equal
//	JS2025           3      100 ms         500 ms     + 5 s          10; Throttled 5
//
// The delay before the n-th retry is U * min(first delay * 2^(n-1), 20 s), with U a draw from 0 to
// 1; with the jitter "equal" 0.5 + U/2 takes its place, and "exact" has none. The delay that the
// service asks for replaces a shorter one, by at most 5 s or by any time. A success returns 1
// token, or the cost of the last retry: the presets of Java and JS2025 at least 1, Go2025 1 more.
// The SDKs truncate delays to whole milliseconds; this package does not.
//
// Standard is the default of botocore (boto3) 1.44, aws-sdk-go-v2 v1.48, the SDKs for JavaScript,
// .NET (4.0.103), Rust, Ruby, PHP and C++, and the CLI, all since 10 November 2026. The SDKs for
// Java
// 2.x and Kotlin follow: Java and Kotlin are what they do, Java2026 what Java will do. Before May
// 2026, and in its design document, Kotlin charges after the delay: set Quota.Late for that. Python
// and PythonSimple retry only failures that are known to be safe to repeat (SafeYes). Legacy is
// botocore's default until 2026, with the rules AWSLegacyRules. Java's quotas are per scope, and
// smithy-python ignores its scopes: budget.PerKey has one for each.
//
// Sources: smithy-kotlin, StandardRetryStrategy; botocore, retries/standard.py, quota.py,
// retryhandler.py and data/_retry.json; smithy-python, retries.py; aws-sdk-go-v2, aws/retry;
// aws-sdk-java-v2, DefaultRetryStrategy, LegacyRetryStrategy; smithy-typescript, util-retry.
type AWSPreset string

// The presets.
const (
	AWSStandard       AWSPreset = "aws-standard"
	AWSDynamoDB       AWSPreset = "aws-dynamodb"
	AWSPython         AWSPreset = "aws-python"
	AWSPythonSimple   AWSPreset = "aws-python-simple"
	AWSKotlin         AWSPreset = "aws-kotlin"
	AWSBotocore2025   AWSPreset = "aws-botocore-2025"
	AWSLegacy         AWSPreset = "aws-legacy"
	AWSLegacyDynamoDB AWSPreset = "aws-legacy-dynamodb"
	AWSGo2025         AWSPreset = "aws-go-2025"
	AWSJava           AWSPreset = "aws-java"
	AWSJava2026       AWSPreset = "aws-java-2026"
	AWSJavaLegacy     AWSPreset = "aws-java-legacy"
	AWSJS2025         AWSPreset = "aws-js-2025"
)

// awsRows is the table above.
var awsRows = []struct {
	name AWSPreset
	AWSOptions
}{
	{AWSStandard, AWSOptions{3, false, full(50 * ms), full(sec), 5 * sec, cost(14, 5, throttling, 0)}},
	{AWSDynamoDB, AWSOptions{4, false, full(25 * ms), full(sec), 5 * sec, cost(14, 5, throttling, 0)}},
	{AWSPython, AWSOptions{3, true, full(50 * ms), full(sec), 5 * sec, cost(14, 5, throttling, 0)}},
	{AWSPythonSimple, AWSOptions{5, true, equal(25 * ms), nil, 0, nil}},
	{AWSKotlin, AWSOptions{3, false, byHalf(10 * ms), byHalf(sec), 5 * sec,
		cost(5, 10, throttling|network|timeout, 0)}},
	{AWSBotocore2025, AWSOptions{3, false, full(sec), nil, 0, cost(5, 10, timeout, 0)}},
	{AWSLegacy, AWSOptions{5, false, uncapped(sec, retrypolicy.JitterFull), nil, 0, nil}},
	{AWSLegacyDynamoDB, AWSOptions{10, false, uncapped(50*ms, retrypolicy.JitterNone), nil, 0, nil}},
	{AWSGo2025, AWSOptions{3, false, AWSGoBackoff{maxDelay}, nil, 0, cost(5, 10, timeout, 0)}},
	{AWSJava, AWSOptions{3, false, full(100 * ms), full(sec), kit.Longest, cost(5, 5, throttling, 1)}},
	{AWSJava2026, AWSOptions{3, false, full(50 * ms), full(sec), kit.Longest, cost(14, 5, throttling, 1)}},
	{AWSJavaLegacy, AWSOptions{4, false, full(100 * ms), equal(500 * ms), kit.Longest, cost(5, 0, throttling, 1)}},
	{AWSJS2025, AWSOptions{3, false, full(100 * ms), full(500 * ms), 5 * sec, cost(10, 5, throttling, 1)}},
}

const (
	maxDelay = 20 * sec

	network = retrypolicy.KindSet(1 << transport.Network)
	timeout = retrypolicy.KindSet(1 << transport.Timeout)
)

func full(base time.Duration) retrypolicy.Policy {
	return retrypolicy.Backoff{Base: base, Max: maxDelay, Jitter: retrypolicy.JitterFull}
}

func equal(base time.Duration) retrypolicy.Policy {
	return retrypolicy.Backoff{Base: base, Max: maxDelay, Jitter: retrypolicy.JitterEqual}
}

func byHalf(base time.Duration) retrypolicy.Policy {
	return retrypolicy.Backoff{Base: base, Factor: 1.5, Max: maxDelay, Jitter: retrypolicy.JitterFull}
}

func uncapped(base time.Duration, j retrypolicy.Jitter) retrypolicy.Policy {
	return retrypolicy.Backoff{Base: base, Jitter: j}
}

// cost returns a quota with the cost of a retry, and that of one after some kinds.
func cost(retry, after int, kinds retrypolicy.KindSet, leastRefund int) *budget.QuotaOptions {
	return &budget.QuotaOptions{Retry: retry, Costs: []budget.Cost{{Kinds: kinds, Tokens: after}}, MinRefund: leastRefund}
}

// AWSPresets returns all presets.
func AWSPresets() (all []AWSPreset) {
	for i := range awsRows {
		all = append(all, awsRows[i].name)
	}
	return all
}

// Options returns the preset as options for NewAWS. The caller may change them.
func (p AWSPreset) Options() *AWSOptions {
	at := slices.Index(AWSPresets(), p)
	if at < 0 {
		return &AWSOptions{} // which NewAWS refuses
	}
	o := awsRows[at].AWSOptions
	if o.Quota != nil {
		q := *o.Quota
		q.Costs = slices.Clone(q.Costs)
		if p == AWSGo2025 {
			q.ExtraRefund = 1
		}
		o.Quota = &q
	}
	return &o
}

// AWSGoBackoff is the delay of aws-sdk-go-v2 before 2026: U * 2^n seconds before the n-th retry,
// and exactly Max, without jitter, from the first n with 2^n s > Max on.
type AWSGoBackoff struct{ Max time.Duration }

// Decide always retries.
func (b AWSGoBackoff) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	n := max(a.Retry, 1)
	if n > bits.Len64(uint64(max(b.Max, 0)/time.Second))-1 {
		return again(max(b.Max, 0))
	}
	return again(kit.OfFloat(kit.Unit(a.Rand) * float64(sec<<n)))
}

// Validate reports an invalid Max.
func (b AWSGoBackoff) Validate() error {
	return kit.Check("AWSGoBackoff.", kit.Bad(b.Max <= 0, "Max is not positive; give the longest delay, such as 20 s"))
}
