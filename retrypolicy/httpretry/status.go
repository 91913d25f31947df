package httpretry

import (
	"slices"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// rule says how to judge a status. Its Kind is in package statuscode.
type rule struct {
	status  int
	verdict classify.Verdict
	safe    classify.Safe
}

// rules has the statuses that differ from their class. Source: RFC 9110, RFC 6585, RFC 4918, RFC
// 8470.
var rules = [...]rule{
	{408, classify.VerdictAgain, classify.SafeUnknown},
	{421, classify.VerdictAgain, classify.SafeYes},
	{425, classify.VerdictAgain, classify.SafeYes},
	{429, classify.VerdictAgain, classify.SafeYes},
	{501, classify.VerdictFail, classify.SafeYes},
	{505, classify.VerdictFail, classify.SafeYes},
	{507, classify.VerdictFail, classify.SafeUnknown},
	{508, classify.VerdictFail, classify.SafeUnknown},
	{509, classify.VerdictAgain, classify.SafeYes},
	{511, classify.VerdictFail, classify.SafeYes},
}

// ruleOf returns the rule for a status from 400 on.
func ruleOf(status int) rule {
	for _, r := range rules {
		if r.status == status {
			return r
		}
	}
	if status < 500 {
		return rule{status, classify.VerdictFail, classify.SafeYes}
	}
	return rule{status, classify.VerdictAgain, classify.SafeUnknown}
}

// Status judges an HTTP status in general. The verdict is Again for 408, 421, 425, 429 and all from
// 500 on except 501, 505, 507, 508 and 511; Succeed for 100 to 399; Fail for the rest. 429 and 509
// are Throttled, 408 and 504 are a Timeout, most other 5xx are Unavailable. A number below 100
// means no answer: Again, Network. An IoT hub has its own rules (403 is its quota); its transports
// report errors with a Kind, which need no status.
func Status(status int) classify.Info {
	switch {
	case status < 100:
		return classify.Info{Verdict: classify.VerdictAgain, Kind: transport.Network}
	case status < 400:
		return classify.Info{Verdict: classify.VerdictSucceed}
	}
	r := ruleOf(status)
	kind := statuscode.Of(min(status, 599), statuscode.Web).Kind
	return classify.Info{Verdict: r.verdict, Kind: kind, Safe: r.safe}
}

// StatusError is an error that knows the HTTP status of the answer. It may also have a method
// RetryAfter() time.Duration with the wait that the service asked for; see ParseRetryAfter.
type StatusError = failure.StatusError

// Classify judges an error that is or wraps a StatusError by Status. Other errors are Undecided. So
// are errors marked by Permanent, and a status below 400, which cannot be the cause of the error.
func Classify(err error) classify.Info {
	s, ok := failure.Status(err)
	if !ok || failure.IsPermanent(err) {
		return classify.Info{}
	}
	info := Status(s.HTTPStatusCode())
	if info.Verdict == classify.VerdictSucceed {
		return classify.Info{}
	}
	info.After = failure.RetryAfter(err)
	return info
}

// ClassifyStatuses returns a classify.Func that retries exactly the given HTTP statuses; otherwise
// it is like Classify.
func ClassifyStatuses(statuses ...int) classify.Func {
	own := append([]int(nil), statuses...)
	return func(err error) classify.Info {
		s, ok := failure.Status(err)
		if !ok || failure.IsPermanent(err) {
			return classify.Info{}
		}
		status := s.HTTPStatusCode()
		info := Status(status)
		switch {
		case slices.Contains(own, status):
			info.Verdict = classify.VerdictAgain
			info.After = failure.RetryAfter(err)
		case info.Verdict == classify.VerdictSucceed:
			return classify.Info{}
		default:
			info.Verdict = classify.VerdictFail
		}
		return info
	}
}
