package httpretry

import (
	"slices"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// statusRow is what one HTTP status means.
type statusRow struct {
	status int
	info   retrypolicy.Info
}

func again(k transport.Kind, s retrypolicy.Safe, f retrypolicy.Fault) retrypolicy.Info {
	return retrypolicy.Info{Verdict: retrypolicy.Again, Kind: k, Safe: s, Fault: f}
}
func fail(k transport.Kind) retrypolicy.Info {
	return retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: k, Safe: retrypolicy.SafeYes, Fault: retrypolicy.FaultClient}
}

// statusTable has the statuses that their class alone does not settle. Source: RFC 9110, RFC 6585,
// RFC 4918, RFC 8470.
var statusTable = [...]statusRow{
	{401, fail(transport.Unauthorized)},
	{402, fail(transport.Quota)},
	{403, fail(transport.Forbidden)},
	{404, fail(transport.NotFound)},
	{405, fail(transport.Unsupported)},
	{406, fail(transport.Unsupported)},
	{407, fail(transport.Unauthorized)},
	{408, again(transport.Timeout, retrypolicy.SafeUnknown, retrypolicy.FaultClient)},
	{409, fail(transport.Conflict)},
	{410, fail(transport.NotFound)},
	{412, fail(transport.Conflict)},
	{413, fail(transport.TooLarge)},
	{414, fail(transport.TooLarge)},
	{415, fail(transport.Unsupported)},
	{421, again(transport.Unavailable, retrypolicy.SafeYes, retrypolicy.FaultServer)},
	{423, fail(transport.Conflict)},
	{425, again(transport.Unavailable, retrypolicy.SafeYes, retrypolicy.FaultClient)},
	{426, fail(transport.Unsupported)},
	{428, fail(transport.Conflict)},
	{429, again(transport.Throttled, retrypolicy.SafeYes, retrypolicy.FaultClient)},
	{431, fail(transport.TooLarge)},
	{451, fail(transport.Forbidden)},
	{501, retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: transport.Unsupported, Safe: retrypolicy.SafeYes,
		Fault: retrypolicy.FaultServer}},
	{505, retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: transport.Unsupported, Safe: retrypolicy.SafeYes,
		Fault: retrypolicy.FaultServer}},
	{507, retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: transport.Quota, Safe: retrypolicy.SafeUnknown,
		Fault: retrypolicy.FaultServer}},
	{508, retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: transport.Invalid, Safe: retrypolicy.SafeUnknown,
		Fault: retrypolicy.FaultServer}},
	{509, again(transport.Throttled, retrypolicy.SafeYes, retrypolicy.FaultClient)},
	{511, retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: transport.Unauthorized, Safe: retrypolicy.SafeYes,
		Fault: retrypolicy.FaultClient}},
}

// Status says what the status of an HTTP answer means to a client in general. Again are 408,
// 421, 425, 429 and all of 500 and above but 501, 505, 507, 508 and 511; 1xx to 3xx Succeed; the
// rest Fail. 429 and 509 are Throttled, 408 is a Timeout, 5xx are Unavailable. What is not a
// status, below 100, counts as no answer: Again, Network. An IoT hub has rules of its own (403 is
// its quota); its transports report errors with a Kind, which need no status.
func Status(status int) retrypolicy.Info {
	for i := range statusTable {
		if statusTable[i].status == status {
			return statusTable[i].info
		}
	}
	switch {
	case status < 100:
		return retrypolicy.Info{Verdict: retrypolicy.Again, Kind: transport.Network}
	case status < 400:
		return retrypolicy.Info{Verdict: retrypolicy.Succeed}
	case status < 500:
		return fail(transport.Invalid)
	}
	return again(transport.Unavailable, retrypolicy.SafeUnknown, retrypolicy.FaultServer)
}

// StatusError is an error that knows the HTTP status of the answer. It may also have a method
// RetryAfter() time.Duration with the wait that the service asked for; see ParseRetryAfter.
type StatusError = failure.StatusError

// Classify judges an error that is or wraps a StatusError by Status, and leaves others
// open; so also what Permanent marked, and a status below 400, which is not why there is an error.
func Classify(err error) retrypolicy.Info {
	s, ok := failure.Status(err)
	if !ok || failure.IsPermanent(err) {
		return retrypolicy.Info{}
	}
	info := Status(s.HTTPStatusCode())
	if info.Verdict == retrypolicy.Succeed {
		return retrypolicy.Info{}
	}
	info.After = failure.RetryAfter(err)
	return info
}

// ClassifyStatuses makes a Classifier that tries again after the given HTTP statuses and after no
// other; the rest is as with Classify.
func ClassifyStatuses(statuses ...int) retrypolicy.Classifier {
	own := append([]int(nil), statuses...)
	return func(err error) retrypolicy.Info {
		s, ok := failure.Status(err)
		if !ok || failure.IsPermanent(err) {
			return retrypolicy.Info{}
		}
		status := s.HTTPStatusCode()
		info := Status(status)
		switch {
		case slices.Contains(own, status):
			info.Verdict = retrypolicy.Again
			info.After = failure.RetryAfter(err)
		case info.Verdict == retrypolicy.Succeed:
			return retrypolicy.Info{}
		default:
			info.Verdict = retrypolicy.Fail
		}
		return info
	}
}
