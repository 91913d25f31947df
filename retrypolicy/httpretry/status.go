package httpretry

import (
	"slices"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// rule says how to judge a status. Its Kind is in package statuscode.
type rule struct {
	status  int
	verdict retrypolicy.Verdict
	safe    retrypolicy.Safe
}

// rules has the statuses that differ from their class. Source: RFC 9110, RFC 6585, RFC 4918, RFC
// 8470.
var rules = [...]rule{
	{408, retrypolicy.VerdictAgain, retrypolicy.SafeUnknown},
	{421, retrypolicy.VerdictAgain, retrypolicy.SafeYes},
	{425, retrypolicy.VerdictAgain, retrypolicy.SafeYes},
	{429, retrypolicy.VerdictAgain, retrypolicy.SafeYes},
	{501, retrypolicy.VerdictFail, retrypolicy.SafeYes},
	{505, retrypolicy.VerdictFail, retrypolicy.SafeYes},
	{507, retrypolicy.VerdictFail, retrypolicy.SafeUnknown},
	{508, retrypolicy.VerdictFail, retrypolicy.SafeUnknown},
	{509, retrypolicy.VerdictAgain, retrypolicy.SafeYes},
	{511, retrypolicy.VerdictFail, retrypolicy.SafeYes},
}

// ruleOf returns the rule for a status from 400 on.
func ruleOf(status int) rule {
	for _, r := range rules {
		if r.status == status {
			return r
		}
	}
	if status < 500 {
		return rule{status, retrypolicy.VerdictFail, retrypolicy.SafeYes}
	}
	return rule{status, retrypolicy.VerdictAgain, retrypolicy.SafeUnknown}
}

// Status judges an HTTP status in general. The verdict is Again for 408, 421, 425, 429 and all from
// 500 on except 501, 505, 507, 508 and 511; Succeed for 100 to 399; Fail for the rest. 429 and 509
// are Throttled, 408 and 504 are a Timeout, most other 5xx are Unavailable. A number below 100
// means no answer: Again, Network. An IoT hub has its own rules (403 is its quota); its transports
// report errors with a Kind, which need no status.
func Status(status int) retrypolicy.Info {
	switch {
	case status < 100:
		return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Network}
	case status < 400:
		return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed}
	}
	r := ruleOf(status)
	kind := statuscode.Of(min(status, 599), statuscode.Web).Kind
	return retrypolicy.Info{Verdict: r.verdict, Kind: kind, Safe: r.safe}
}

// StatusError is an error that knows the HTTP status of the answer. It may also have a method
// RetryAfter() time.Duration with the wait that the service asked for; see ParseRetryAfter.
type StatusError interface {
	error
	// HTTPStatusCode returns the status.
	HTTPStatusCode() int
}

// Classify judges an error that is or wraps a StatusError by Status. Other errors are Undecided. So
// are errors marked by Permanent, and a status below 400, which cannot be the cause of the error.
func Classify(err error) retrypolicy.Info {
	s, ok := kit.Status(err)
	if !ok || kit.IsPermanent(err) {
		return retrypolicy.Info{}
	}
	info := Status(s.HTTPStatusCode())
	if info.Verdict == retrypolicy.VerdictSucceed {
		return retrypolicy.Info{}
	}
	info.After = kit.RetryAfter(err)
	return info
}

// ClassifyStatuses returns a classifier that retries exactly the given HTTP statuses. Otherwise it
// is like Classify.
func ClassifyStatuses(statuses ...int) retrypolicy.Classifier {
	own := append([]int(nil), statuses...)
	return func(err error) retrypolicy.Info {
		s, ok := kit.Status(err)
		if !ok || kit.IsPermanent(err) {
			return retrypolicy.Info{}
		}
		status := s.HTTPStatusCode()
		info := Status(status)
		switch {
		case slices.Contains(own, status):
			info.Verdict = retrypolicy.VerdictAgain
			info.After = kit.RetryAfter(err)
		case info.Verdict == retrypolicy.VerdictSucceed:
			return retrypolicy.Info{}
		default:
			info.Verdict = retrypolicy.VerdictFail
		}
		return info
	}
}
