package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

// maxDelay is the longest computed delay in every SDK but botocore legacy.
const maxDelay = 20 * time.Second

// over is the margin by which the service's delay may exceed the computed one.
const over = 5 * time.Second

func full(base time.Duration) retrypolicy.Policy {
	return retrypolicy.Backoff{Base: base, Max: maxDelay, Jitter: retrypolicy.JitterFull}
}

// AWSStandard is the standard mode of the AWS SDKs:
//
//   - 3 attempts.
//   - The delay is U * min(50 ms * 2^(n-1), 20 s) before the n-th retry, with 1 s instead of 50 ms
//     after Throttled.
//   - The service's delay replaces it: at least the computed delay, and at most 5 s more.
//   - The quota is 500 tokens. A retry costs 14, but 5 after Throttled.
//
// So Throttled, the most expensive failure in some older SDKs, is the cheapest here, and waits
// twenty times as long. U is a draw from 0 to 1, here and below. The SDKs truncate delays to whole
// milliseconds; this package does not.
//
// Since 10 November 2026 it is the default of botocore (boto3) 1.44, aws-sdk-go-v2 v1.48, the SDKs
// for JavaScript, .NET (4.0.103), Rust, Ruby, PHP and C++, and the CLI. Those for Java 2.x and
// Kotlin follow: AWSJava and AWSKotlin are what they do, AWSJava2026 what Java will do. AWSPython
// and AWSDynamoDB differ in a few settings.
//
// Source: smithy-kotlin, StandardRetryStrategy; botocore, retries/standard.py; smithy-typescript,
// util-retry; aws-sdk-go-v2, aws/retry.
func AWSStandard() *AWSOptions {
	return &AWSOptions{
		Attempts: 3, Backoff: full(50 * time.Millisecond), Throttled: full(time.Second),
		ReadAfter: true, Over: over,
		Quota: &budget.QuotaOptions{Retry: 14, Costs: []budget.Cost{{Kinds: throttling, Tokens: 5}}},
	}
}

// AWSKotlin is the standard mode of smithy-kotlin, 2021 to 2026:
//
//   - 3 attempts.
//   - The delay is U * min(10 ms * 1.5^(n-1), 20 s) before the n-th retry, with 1 s instead of 10
//     ms after Throttled.
//   - The service's delay counts as in AWSStandard.
//   - The quota is 500 tokens. A retry costs 5, but 10 after Throttled, Network and Timeout.
//
// Before May 2026 it charged after the delay: set Quota.Late for that.
//
// Source: smithy-kotlin, StandardRetryStrategy, StandardRetryTokenBucket,
// ExponentialBackoffWithJitter.
func AWSKotlin() *AWSOptions {
	return &AWSOptions{
		Attempts: 3,
		Backoff: retrypolicy.Backoff{Base: 10 * time.Millisecond, Factor: 1.5, Max: maxDelay,
			Jitter: retrypolicy.JitterFull},
		Throttled: retrypolicy.Backoff{Base: time.Second, Factor: 1.5, Max: maxDelay, Jitter: retrypolicy.JitterFull},
		ReadAfter: true, Over: over,
		Quota: &budget.QuotaOptions{Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Throttled, transport.Network,
			transport.Timeout), Tokens: 10}}},
	}
}

// AWSBotocore2025 is the standard mode of botocore (boto3) before 2026:
//
//   - 3 attempts.
//   - The delay is U * min(2^(n-1), 20) s.
//   - The service's delay is ignored.
//   - The quota is 500 tokens. A retry costs 5, but 10 after Timeout.
//
// With Adaptive around it, it is the adaptive mode.
//
// Beware of the counting: botocore's client option max_attempts counts retries; Attempts counts
// attempts, as total_max_attempts does.
//
// Source: botocore, retries/standard.py, retries/quota.py.
func AWSBotocore2025() *AWSOptions {
	return &AWSOptions{
		Attempts: 3, Backoff: full(time.Second),
		Quota: &budget.QuotaOptions{Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Timeout), Tokens: 10}}},
	}
}

// AWSDynamoDB is AWSStandard with the settings for DynamoDB and its streams: 4 attempts, and 25 ms
// instead of 50 ms. smithy-python uses the same 4 attempts and 25 ms.
//
// Source: botocore, retries/standard.py; the DynamoDB plug-in of smithy-python.
func AWSDynamoDB() *AWSOptions {
	o := AWSStandard()
	o.Attempts, o.Backoff = 4, full(25*time.Millisecond)
	return o
}

// AWSBotocoreLegacy is the first mode of botocore, its default until 2026: 5 attempts, delay U *
// 2^(n-1) s without a cap, no quota. Its list of retried failures is LegacyRules.
//
// Source: botocore, retryhandler.py, data/_retry.json.
func AWSBotocoreLegacy() *AWSOptions {
	return &AWSOptions{Attempts: 5, Backoff: retrypolicy.Backoff{Base: time.Second, Jitter: retrypolicy.JitterFull}}
}

// AWSBotocoreLegacyDynamoDB is BotocoreLegacy for DynamoDB: 10 attempts, delay 50 ms * 2^(n-1)
// without jitter.
//
// Source: botocore, data/_retry.json.
func AWSBotocoreLegacyDynamoDB() *AWSOptions {
	return &AWSOptions{Attempts: 10, Backoff: retrypolicy.Backoff{Base: 50 * time.Millisecond}}
}

// AWSPython is the standard strategy of smithy-python: AWSStandard, but it retries only failures
// that are known to be safe to repeat (SafeYes). A refusal by the quota carries the retry's delay;
// see Retrier.LongPoll. The strategy accepts scopes and ignores them; PerKey separates them.
//
// Source: smithy-python, retries.py, StandardRetryStrategy.
func AWSPython() *AWSOptions {
	o := AWSStandard()
	o.SafeOnly = true
	return o
}

// AWSPythonSimple is the simple strategy of smithy-python:
//
//   - 5 attempts.
//   - The delay is (0.5 + U/2) * min(25 ms * 2^(n-1), 20 s).
//   - Only failures that are known to be safe to repeat are retried.
//   - There is no quota.
//
// The library's other back-offs are Backoff with NoJitter, FullJitter and DecorrelatedSmithy.
// DecorrelatedSmithy keeps its state in the series here, not in the strategy.
//
// Source: smithy-python, retries.py, SimpleRetryStrategy.
func AWSPythonSimple() *AWSOptions {
	return &AWSOptions{
		Attempts: 5, SafeOnly: true,
		Backoff: retrypolicy.Backoff{Base: 25 * time.Millisecond, Max: maxDelay, Jitter: retrypolicy.JitterEqual},
	}
}

// AWSGo2025 is aws-sdk-go-v2 before 2026:
//
//   - 3 attempts.
//   - The delay is GoBackoff with 20 s.
//   - The service's delay is ignored.
//   - The quota is 500 tokens. A retry costs 5, but 10 after Timeout. A retry that succeeds returns
//     its cost plus 1.
//
// Source: aws-sdk-go-v2, aws/retry/standard.go.
func AWSGo2025() *AWSOptions {
	return &AWSOptions{
		Attempts: 3, Backoff: AWSGoBackoff{maxDelay},
		Quota: &budget.QuotaOptions{ExtraRefund: 1, Costs: []budget.Cost{{Kinds: retrypolicy.Kinds(transport.Timeout),
			Tokens: 10}}},
	}
}

// AWSJava is the standard mode of aws-sdk-java-v2 before 2026:
//
//   - 3 attempts.
//   - The delay is U * min(100 ms * 2^(n-1), 20 s), with 1 s instead of 100 ms after Throttled.
//   - The service's delay is a lower bound without a limit. If that is too trusting, set ReadAfter
//     to false, or put RetryAfter with a Max inside Backoff.
//   - The quota is 500 tokens. A retry costs 5. A retry that succeeds returns its cost, and at
//     least 1.
//
// The SDK has a quota per scope: see PerKey.
//
// Source: aws-sdk-java-v2, DefaultRetryStrategy, StandardRetryStrategy.
func AWSJava() *AWSOptions {
	return &AWSOptions{
		Attempts: 3, Backoff: full(100 * time.Millisecond), Throttled: full(time.Second),
		ReadAfter: true,
		Quota:     &budget.QuotaOptions{MinRefund: 1},
	}
}

// AWSJava2026 is the standard mode of aws-sdk-java-v2 since 2026: Java with 50 ms instead of 100
// ms, and 14 per retry, but 5 after Throttled.
//
// Source: aws-sdk-java-v2, the constants of its retries 2.1.
func AWSJava2026() *AWSOptions {
	o := AWSStandard()
	o.Over = 0
	o.Quota.MinRefund = 1
	return o
}

// AWSJavaLegacy is the legacy mode of aws-sdk-java-v2:
//
//   - 4 attempts.
//   - The delay is U * min(100 ms * 2^(n-1), 20 s), and after Throttled
//     (0.5 + U/2) * min(500 ms * 2^(n-1), 20 s).
//   - The quota is 500 tokens. A retry costs 5, but 0 after Throttled.
//
// The service's delay and the returned tokens are as in Java.
//
// Source: aws-sdk-java-v2, LegacyRetryStrategy.
func AWSJavaLegacy() *AWSOptions {
	return &AWSOptions{
		Attempts: 4, Backoff: full(100 * time.Millisecond),
		Throttled: retrypolicy.Backoff{Base: 500 * time.Millisecond, Max: maxDelay, Jitter: retrypolicy.JitterEqual},
		ReadAfter: true,
		Quota:     &budget.QuotaOptions{MinRefund: 1, Costs: []budget.Cost{{Kinds: throttling, Tokens: 0}}},
	}
}

// AWSJS2025 is aws-sdk-js-v3 before 2026:
//
//   - 3 attempts.
//   - The delay is U * min(100 ms * 2^(n-1), 20 s), with 500 ms instead of 100 ms after Throttled.
//   - The service's delay counts as in AWSStandard.
//   - The quota is 500 tokens. A retry costs 10, but 5 after Throttled.
//
// Source: smithy-typescript, util-retry, StandardRetryStrategy and its constants.
func AWSJS2025() *AWSOptions {
	return &AWSOptions{
		Attempts: 3, Backoff: full(100 * time.Millisecond), Throttled: full(500 * time.Millisecond),
		ReadAfter: true, Over: over,
		Quota: &budget.QuotaOptions{Retry: 10, MinRefund: 1, Costs: []budget.Cost{{Kinds: throttling, Tokens: 5}}},
	}
}
