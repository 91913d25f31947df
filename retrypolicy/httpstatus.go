package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// statusRow is what one HTTP status means.
type statusRow struct {
	status int
	info   Info
}

func again(k transport.Kind, s Safe, f Fault) Info { return Info{Again, k, s, f, 0} }
func fail(k transport.Kind) Info                   { return Info{Fail, k, SafeYes, FaultClient, 0} }

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
	{408, again(transport.Timeout, SafeUnknown, FaultClient)},
	{409, fail(transport.Conflict)},
	{410, fail(transport.NotFound)},
	{412, fail(transport.Conflict)},
	{413, fail(transport.TooLarge)},
	{414, fail(transport.TooLarge)},
	{415, fail(transport.Unsupported)},
	{421, again(transport.Unavailable, SafeYes, FaultServer)},
	{423, fail(transport.Conflict)},
	{425, again(transport.Unavailable, SafeYes, FaultClient)},
	{426, fail(transport.Unsupported)},
	{428, fail(transport.Conflict)},
	{429, again(transport.Throttled, SafeYes, FaultClient)},
	{431, fail(transport.TooLarge)},
	{451, fail(transport.Forbidden)},
	{501, Info{Fail, transport.Unsupported, SafeYes, FaultServer, 0}},
	{505, Info{Fail, transport.Unsupported, SafeYes, FaultServer, 0}},
	{507, Info{Fail, transport.Quota, SafeUnknown, FaultServer, 0}},
	{508, Info{Fail, transport.Invalid, SafeUnknown, FaultServer, 0}},
	{509, again(transport.Throttled, SafeYes, FaultClient)},
	{511, Info{Fail, transport.Unauthorized, SafeYes, FaultClient, 0}},
}

// HTTPStatus says what the status of an HTTP answer means to a client in general. Again are 408,
// 421, 425, 429 and all of 500 and above but 501, 505, 507, 508 and 511; 1xx to 3xx Succeed; the
// rest Fail. 429 and 509 are Throttled, 408 is a Timeout, 5xx are Unavailable. What is not a
// status, below 100, counts as no answer: Again, Network. An IoT hub has rules of its own (403 is
// its quota); its transports report errors with a Kind, which need no status.
func HTTPStatus(status int) Info {
	for i := range statusTable {
		if statusTable[i].status == status {
			return statusTable[i].info
		}
	}
	switch {
	case status < 100:
		return Info{Verdict: Again, Kind: transport.Network}
	case status < 400:
		return Info{Verdict: Succeed}
	case status < 500:
		return fail(transport.Invalid)
	}
	return again(transport.Unavailable, SafeUnknown, FaultServer)
}

// StatusError is an error that knows the HTTP status of the answer. It may also have a method
// RetryAfter() time.Duration with the wait that the service asked for; see ParseRetryAfter.
type StatusError interface {
	error
	HTTPStatusCode() int
}

// findStatus returns the outermost error of err's chain that has a status.
func findStatus(err error) (found StatusError, ok bool) {
	transport.Walk(err, func(err error) bool {
		found, ok = err.(StatusError)
		return ok
	})
	return found, ok
}

// ClassifyHTTP judges an error that is or wraps a StatusError by HTTPStatus, and leaves others
// open; so also what Permanent marked, and a status below 400, which is not why there is an error.
func ClassifyHTTP(err error) Info {
	s, ok := findStatus(err)
	if !ok || isPermanent(err) {
		return Info{}
	}
	info := HTTPStatus(s.HTTPStatusCode())
	if info.Verdict == Succeed {
		return Info{}
	}
	info.After = wished(err)
	return info
}

// ClassifyStatuses makes a Classifier that tries again after the given HTTP statuses and after no
// other; the rest is as with ClassifyHTTP.
func ClassifyStatuses(statuses ...int) Classifier {
	own := append([]int(nil), statuses...)
	return func(err error) Info {
		s, ok := findStatus(err)
		if !ok || isPermanent(err) {
			return Info{}
		}
		status := s.HTTPStatusCode()
		info := HTTPStatus(status)
		switch {
		case has(own, status):
			info.Verdict = Again
			info.After = wished(err)
		case info.Verdict == Succeed:
			return Info{}
		default:
			info.Verdict = Fail
		}
		return info
	}
}

// wished is the wait that the service asked for, if an error of the chain tells.
func wished(err error) (after time.Duration) {
	transport.Walk(err, func(err error) bool {
		w, ok := err.(interface{ RetryAfter() time.Duration })
		if ok {
			after = w.RetryAfter()
		}
		return ok
	})
	return after
}

func has(list []int, n int) bool {
	for _, item := range list {
		if item == n {
			return true
		}
	}
	return false
}
