package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// AzureIoTOperations is the back-off of the Azure IoT Operations SDK for Go, which never stops:
// min(1/8 s * 2^(n-1), 1 min) * [0.95, 1.05) before the n-th retry. Source: the SDK's code, package
// retry.
func AzureIoTOperations() retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: time.Second / 8, Max: time.Minute, Jitter: retrypolicy.JitterProportional,
		Low: 0.95, High: 1.05}
}

// Cenkalti is the back-off of cenkalti/backoff with its defaults: half a second, 1.5 times as much
// each time, up to a minute, each with 50 % of jitter. It never stops. Initial is Base, Multiplier
// is Factor, and a RandomizationFactor r is Low = 1 - r and High = 1 + r. Source: the library's
// code, ExponentialBackOff.
func Cenkalti() retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: time.Second / 2, Factor: 1.5, Max: time.Minute,
		Jitter: retrypolicy.JitterProportional, Low: 0.5, High: 1.5}
}

// CenkaltiV4 is the complete default of cenkalti/backoff v4: no retry whose delay would end later
// than 15 minutes after the beginning.
func CenkaltiV4() retrypolicy.MaxElapsed {
	return retrypolicy.MaxElapsed{Limit: 15 * time.Minute, LookAhead: true, Policy: Cenkalti()}
}

// AzureNodeDocumented is the documented policy of the Azure IoT device SDK for Node.js:
// ExponentialBackoffWithJitter with its usual constants, and with C = 5 s, Cmin = 10 s, Cmax = 60 s
// after a failure of Kind Throttled. Source: the SDK's document and the comments in its code.
func AzureNodeDocumented() retrypolicy.ByKind { return azureNode(0.5, 0.25) }

// AzureNode has the delays of the code of the Azure IoT device SDK for Node.js, which differs from
// the document: it draws rand from 0 to C*(Jd-Ju). It never stops; the SDK ends an operation after
// 4 minutes. Source: the SDK's code, retry_policy.
func AzureNode() retrypolicy.ByKind { return azureNode(1, 0.75) }

func azureNode(jd, ju float64) retrypolicy.ByKind {
	return retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{Kinds: throttling, Policy: retrypolicy.ExponentialBackoffWithJitter{
			C: 5 * sec, Cmin: 10 * sec, Cmax: time.Minute, Jd: jd, Ju: ju}}},
		Default: retrypolicy.ExponentialBackoffWithJitter{Jd: jd, Ju: ju},
	}
}

// Truncated is the policy of the note on truncated exponential back-off with fetch-retry, for use
// with ClassifyTruncated:
//
//	5xx and 429     min(1000*2^n + 1..1000, 15000) ms, n from 0   three retries
//	408             1000 ms                                       one retry
//	other 4xx                                                     none
//
// Each row counts its own failures. Failed connections, which the note does not mention, count as
// 5xx here, and local time-outs as 408. The note repeats only what retrypolicy.SafeOnly repeats.
func Truncated() retrypolicy.ByKind {
	return retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{
			{Kinds: timeout, OwnCount: true,
				Policy: retrypolicy.MaxAttempts{Total: 2, Policy: retrypolicy.Fixed{Delay: sec}}},
			{Kinds: throttling | network | retrypolicy.Kinds(transport.Unavailable, transport.Unknown), OwnCount: true,
				Policy: retrypolicy.MaxAttempts{Total: 4, Policy: TruncatedExponential{}}},
		},
		Default: retrypolicy.NoRetry{},
	}
}

// ClassifyTruncated judges an error that is or wraps an httpretry.StatusError by the note's rows:
// all 5xx are Again and Unavailable; of 4xx only 408 and 429 are Again. Other errors are Undecided.
func ClassifyTruncated(err error) retrypolicy.Info {
	s, ok := kit.Status(err)
	if !ok || kit.IsPermanent(err) || s.HTTPStatusCode() < 400 {
		return retrypolicy.Info{}
	}
	info := ofStatus(s.HTTPStatusCode())
	switch status := s.HTTPStatusCode(); {
	case status >= 500:
		info = retrypolicy.OfKind(transport.Unavailable)
	case status != 408 && status != 429:
		info.Verdict = retrypolicy.VerdictFail
	}
	info.After = kit.RetryAfter(err)
	return info
}

// TruncatedExponential is the curve of the first row of Truncated. 1..1000 are whole milliseconds.
type TruncatedExponential struct{}

// Decide always retries.
func (TruncatedExponential) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	const longest = 15 * sec
	d := kit.Exponential(sec, 2, max(a.Retry, 1), longest) + time.Duration(1+kit.Below(1000, a.Rand))*ms
	return again(min(d, longest))
}
