package compat

import (
	"slices"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// FetchRetry is the retry policy of the JavaScript library fetch-retry, for Retrier{Policy: f,
// Classify: f.Classify}. An answer is a failure with a status (httpretry.StatusError); any other is
// a network error. Retry-After is ignored. The zero value never retries.
//
// Source: the library's code.
type FetchRetry struct {
	// Retries is the number of retries. OnFunc overrides it.
	Retries int
	// Delay is the delay before each retry, unless DelayFunc is set. Both functions receive the number
	// of the failed attempt, 0 for the first.
	Delay     time.Duration
	DelayFunc func(attempt int, err error) time.Duration
	// On lists the statuses that are retried, in addition to network errors. Other answers are final;
	// with an empty list all are.
	On []int
	// OnFunc, if set, decides alone, and Retries is ignored.
	OnFunc func(attempt int, err error) bool
}

// FetchRetryDefaults returns the library's defaults: three retries after network errors, 1 s apart.
func FetchRetryDefaults() FetchRetry { return FetchRetry{Retries: 3, Delay: time.Second} }

// Decide stops with OutOfAttempts after Retries, with NotRetryable after an answer that On does not
// list, and with Policy if OnFunc returns false.
func (f FetchRetry) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	attempt := max(a.Retry, 1) - 1
	if f.OnFunc != nil {
		if !f.OnFunc(attempt, a.Err) {
			return stop(retrypolicy.ReasonPolicy)
		}
	} else {
		if s, ok := kit.Status(a.Err); ok && !slices.Contains(f.On, s.HTTPStatusCode()) {
			return stop(retrypolicy.ReasonNotRetryable)
		}
		if attempt >= f.Retries {
			return stop(retrypolicy.ReasonOutOfAttempts)
		}
	}
	delay := f.Delay
	if f.DelayFunc != nil {
		delay = f.DelayFunc(attempt, a.Err)
	}
	return again(max(delay, 0))
}

// Classify leaves every failure to Decide, as the library does, even those that the function
// retrypolicy.Classify would end. Only errors marked by Permanent fail. A status below 400 that the
// settings do not retry is a success.
func (f FetchRetry) Classify(err error) retrypolicy.Info {
	if kit.IsPermanent(err) {
		return retrypolicy.Info{}
	}
	s, ok := kit.Status(err)
	if !ok {
		return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.KindOf(err)}
	}
	status := s.HTTPStatusCode()
	if status >= 100 && status < 400 && f.OnFunc == nil && !slices.Contains(f.On, status) {
		return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed}
	}
	info := ofStatus(status)
	info.Verdict = retrypolicy.VerdictAgain
	return info
}

// Validate reports the first invalid parameter.
func (f FetchRetry) Validate() error {
	return kit.Check("FetchRetry.",
		kit.Bad(f.Retries < 0, "Retries is negative; give 0 or more"),
		kit.Bad(f.Delay < 0, "Delay is negative; give 0 or more"),
		kit.Bad(f.On != nil && f.OnFunc != nil, "On and OnFunc are both set; give one, the function decides alone"),
		kit.Bad(f.Delay == 0 && f.DelayFunc == nil && (f.Retries > 0 || f.OnFunc != nil),
			"Delay is 0; give a delay, or a DelayFunc that returns 0 for none"))
}
