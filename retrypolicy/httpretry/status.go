package httpretry

import (
	"slices"
	"time"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Status judges an HTTP status in general. The verdict is Again for 408, 421, 425, 429 and all from
// 500 on except 501, 505, 507, 508 and 511; Succeed for 100 to 399; Fail for the rest. 429 and 509
// are Throttled, 408 and 504 are a Timeout, most other 5xx are Unavailable. A number below 100
// means no answer: Again, Network. An IoT hub has its own rules, which its transports apply.
func Status(status int) retrypolicy.Info {
	switch {
	case status < 100:
		return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Network}
	case status < 400:
		return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed}
	}
	meaning := statuscode.Of(min(status, 599), statuscode.Web)
	info := retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: meaning.Kind}
	if meaning.About == statuscode.Moment && meaning.Kind != transport.Quota { // which may take days
		info.Verdict = retrypolicy.VerdictAgain
	}
	if kit.NotActed(meaning.Kind) || status == 421 || status == 425 { // RFC 9110, 15.5.20; RFC 8470, 5.2
		info.Safe = retrypolicy.SafeYes
	}
	return info
}

// StatusError is an error that knows the HTTP status of the answer. It may also have a method
// RetryAfter() time.Duration with the wait that the service asked for; see RetryAfterHeaders.
type StatusError interface {
	error
	// HTTPStatusCode returns the status.
	HTTPStatusCode() int
}

// Classify judges an error that is or wraps a StatusError by Status. Other errors are Undecided. So
// are errors marked by Permanent, and a status below 400, which cannot be the cause of the error.
func Classify(err error) retrypolicy.Info { return judge(err, Status) }

// ClassifyStatuses returns a classifier that retries exactly the given HTTP statuses. Otherwise it
// is like Classify.
func ClassifyStatuses(statuses ...int) retrypolicy.Classifier {
	listed := slices.Clone(statuses)
	of := func(status int) retrypolicy.Info {
		info := Status(status)
		switch {
		case slices.Contains(listed, status):
			info.Verdict = retrypolicy.VerdictAgain
		case info.Verdict == retrypolicy.VerdictAgain:
			info.Verdict = retrypolicy.VerdictFail
		}
		return info
	}
	return func(err error) retrypolicy.Info { return judge(err, of) }
}

// judge judges the status of err by of.
func judge(err error, of func(status int) retrypolicy.Info) retrypolicy.Info {
	s, ok := kit.Status(err)
	if !ok || kit.IsPermanent(err) {
		return retrypolicy.Info{}
	}
	info := of(s.HTTPStatusCode())
	if info.Verdict == retrypolicy.VerdictSucceed {
		return retrypolicy.Info{}
	}
	info.After = kit.RetryAfter(err)
	return info
}

// RetryAfterHeaders reads the delay that a service asked for from the headers of its answer:
// retry-after-ms, x-ms-retry-after-ms and x-amz-retry-after in milliseconds, then Retry-After:
// whole or fractional seconds, or a date in one of the three forms of RFC 9110. A date is compared
// with the header Date, so that a wrong clock does not matter, or else with now; one in the past is
// 0. The first valid header counts; in azcore the first that is present, even if it is invalid. get
// is the Get of an http.Header.
func RetryAfterHeaders(get func(name string) string, now time.Time) (time.Duration, bool) {
	return times.RetryAfterHeaders(get, now)
}
