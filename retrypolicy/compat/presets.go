package compat

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// AzureIoTOperations is the back-off of the Azure IoT Operations SDK for Go: min(1/8 s * 2^(n-1), 1
// min) * [0.95, 1.05) before the n-th retry. It never stops, as in that SDK's session client. To
// change the value: for no jitter set Jitter = JitterNone with Low and High 0; for a limit of
// attempts use MaxAttempts; for a time limit use Retrier.Timeout. Source: the SDK's code, package
// retry.
func AzureIoTOperations() retrypolicy.Backoff {
	return retrypolicy.Backoff{Base: time.Second / 8, Max: time.Minute, Jitter: retrypolicy.JitterProportional,
		Low: 0.95, High: 1.05}
}

// Cenkalti is the back-off of cenkalti/backoff with its defaults: half a second, 1.5 times as much
// each time, up to a minute, each with 50 % of jitter, which may exceed the minute. It never stops.
// To change the value: Initial is Base, Multiplier is Factor, and a RandomizationFactor r is Low =
// 1 - r and High = 1 + r, or JitterNone for 0. Source: the library's code, ExponentialBackOff.
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
func AzureNodeDocumented() retrypolicy.ByKind {
	return retrypolicy.ByKind{
		Rules:   []retrypolicy.Rule{{Kinds: throttling, Policy: documentedThrottled}},
		Default: retrypolicy.ExponentialBackoffWithJitter{},
	}
}

// documented and documentedThrottled hold the constants of the Azure IoT device SDK for Node.js.
var (
	documented = retrypolicy.ExponentialBackoffWithJitter{C: 100 * ms, Cmin: 100 * ms, Cmax: 10 * sec, Jd: 0.5, Ju: 0.25}

	documentedThrottled = retrypolicy.ExponentialBackoffWithJitter{C: 5 * sec, Cmin: 10 * sec, Cmax: time.Minute,
		Jd: 0.5, Ju: 0.25}
)

// AzureNode computes the delays of the code of the Azure IoT device SDK for Node.js:
//
//	min(Cmin + (2^(n-1) - 1) * rand(0, C*(Jd-Ju)), Cmax)
//
// with the constants of AzureNodeDocumented, and n = 1 for the first retry. It differs from that
// document: it drops the lower bound of rand. A Retry below 1, which the SDK never has, is computed
// as n = 0: no delay, or after Throttled Cmin minus half of rand. It never stops; the SDK ends an
// operation after 4 minutes. Source: the SDK's code, retry_policy.
type AzureNode struct{}

// Decide always retries.
func (AzureNode) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	set := &documented
	if a.Kind == transport.Throttled {
		set = &documentedThrottled
	}
	r := kit.Below(uint64(set.C/4), a.Rand) // Jd - Ju is a quarter in both sets
	d := retrypolicy.Decision{Retry: true}
	switch {
	case a.Retry >= 1:
		d.Delay = kit.Growth(a.Retry, r, set.Cmin, set.Cmax)
	case set == &documentedThrottled:
		d.Delay = set.Cmin - time.Duration(r/2)
	}
	return d
}

// Truncated is the policy of the note on truncated exponential back-off with fetch-retry, for use
// with ClassifyTruncated:
//
//	5xx and 429     min(1000*2^n + 1..1000, 15000) ms, n from 0   three retries
//	408             1000 ms                                       one retry
//	other 4xx                                                     none
//
// Each row counts its own failures, so after a 408 there are still three retries for 5xx. The note
// does not mention failed connections; here they count as 5xx, and local time-outs count as 408.
// The note repeats only operations that are safe to repeat: see Retrier.Once.
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

// TruncatedExponential waits min(Base*2^(n-1) + random, Max) before the n-th retry, where random is
// a whole number of milliseconds from 1 to Random. It never stops. The zero value has the numbers
// of the note behind Truncated: Base 1 s, Random 1 s, Max 15 s. Otherwise no default applies.
type TruncatedExponential struct {
	Base, Random, Max time.Duration
}

func (t TruncatedExponential) settings() TruncatedExponential {
	if t == (TruncatedExponential{}) {
		t = TruncatedExponential{Base: sec, Random: sec, Max: 15 * sec}
	}
	return t
}

// Decide always retries.
func (t TruncatedExponential) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	t = t.settings()
	d := kit.Exponential(t.Base, 2, max(a.Retry, 1), t.Max)
	if limit := uint64(max(t.Random, 0) / ms); limit > 0 {
		d += min(time.Duration(1+kit.Below(limit, a.Rand))*ms, t.Max-d)
	}
	return retrypolicy.Decision{Retry: true, Delay: max(d, 0)}
}

// Validate reports the first invalid parameter.
func (t TruncatedExponential) Validate() error {
	t = t.settings()
	return kit.Check("TruncatedExponential.",
		kit.Bad(t.Base < 0, "Base is negative; give 0 or more"),
		kit.Bad(t.Random < 0, "Random is negative; give 0 or more"),
		kit.Bad(t.Base == 0 && t.Random < ms,
			"Base is 0 and Random below 1 ms, so every delay would be 0; give one of them"),
		kit.Bad(t.Max <= 0, "Max is not positive, so every delay would be 0; give the longest delay"),
		kit.Bad(t.Max < t.Base, "Max is below Base; give Base or more"))
}
