package compat

import (
	"time"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// TruncatedExponential waits min(Base*2^(n-1) + random, Max) before the n-th retry, where random is
// a whole number of milliseconds from 1 to Random. It never stops. The zero value has the numbers
// of the note behind Truncated: Base 1 s, Random 1 s, Max 15 s, so 1.001 to 2 s, 2.001 to 3 s,
// 4.001 to 5 s, 8.001 to 9 s, then 15 s. Otherwise no default applies.
type TruncatedExponential struct {
	Base, Random, Max time.Duration
}

func (t TruncatedExponential) settings() TruncatedExponential {
	if t == (TruncatedExponential{}) {
		t = TruncatedExponential{Base: time.Second, Random: time.Second, Max: 15 * time.Second}
	}
	return t
}

// Decide always retries.
func (t TruncatedExponential) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	t = t.settings()
	d := kit.Exponential(t.Base, 2, max(a.Retry, 1), t.Max)
	if limit := uint64(max(t.Random, 0) / time.Millisecond); limit > 0 {
		d += min(time.Duration(1+kit.Below(limit, a.Rand))*time.Millisecond, t.Max-d)
	}
	return retrypolicy.Decision{Retry: true, Delay: max(d, 0)}
}

// Validate reports the first invalid parameter.
func (t TruncatedExponential) Validate() error {
	t = t.settings()
	return kit.Check("TruncatedExponential.",
		kit.Bad(t.Base < 0, "Base is negative; give 0 or more"),
		kit.Bad(t.Random < 0, "Random is negative; give 0 or more"),
		kit.Bad(t.Base == 0 && t.Random < time.Millisecond,
			"Base is 0 and Random below 1 ms, so every delay would be 0; give one of them"),
		kit.Bad(t.Max <= 0,
			"Max is not positive, so every delay would be 0; give the longest delay"),
		kit.Bad(t.Max < t.Base, "Max is below Base; give Base or more"))
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
	own := retrypolicy.MaxAttempts{Total: 4, Policy: TruncatedExponential{}}
	return retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{
			{Kinds: retrypolicy.Kinds(transport.Timeout), Policy: retrypolicy.MaxAttempts{Total: 2,
				Policy: retrypolicy.Fixed{Delay: time.Second}}, OwnCount: true},
			{Kinds: retrypolicy.Kinds(transport.Throttled, transport.Unavailable, transport.Network, transport.Unknown),
				Policy:   own,
				OwnCount: true},
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

// ofStatus judges a failure by the Kind of its HTTP status. Below 100 there was no answer.
func ofStatus(status int) retrypolicy.Info {
	if status < 100 {
		return retrypolicy.OfKind(transport.Network)
	}
	return retrypolicy.OfKind(statuscode.Of(min(status, 599), statuscode.Web).Kind)
}

// stop returns a decision that stops, for reason.
func stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}
