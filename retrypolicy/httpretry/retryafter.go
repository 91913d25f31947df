package httpretry

import (
	"time"

	"github.com/hubline-iot/hubline/internal/retryafter"
)

// ParseRetryAfter reads an HTTP Retry-After header: seconds, with a fraction if need be, or a date
// in one of the three forms of RFC 9110, from which now is subtracted. A date in the past is 0. It
// returns false for anything else: an empty value, a negative number, garbage. Where the header was
// sent twice, a date may be followed by a comma and another value; seconds count before the date,
// since they need no clock, and anything else is ignored. Numbers beyond the longest Duration are
// the longest Duration; retrypolicy.RetryAfter.Max limits what a service can ask for.
//
// A date depends on the clock. If the response has a Date header, use ParseRetryAfterAt.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	return retryafter.Parse(value, now)
}

// ParseRetryAfterAt is ParseRetryAfter for a response with a Date header. A date is compared with
// the clock of the service, so a device whose clock is wrong waits as long as was meant. If date is
// missing or garbage, it is compared with now.
func ParseRetryAfterAt(value, date string, now time.Time) (time.Duration, bool) {
	return retryafter.ParseAt(value, date, now)
}

// RetryAfterHeaders reads the delay that a service asked for from the headers of its answer:
// retry-after-ms, x-ms-retry-after-ms and x-amz-retry-after in milliseconds, then Retry-After with
// Date. The first valid header counts. get is the Get of an http.Header; it must ignore case.
//
// azcore differs: there the first header that is present decides, so an invalid one hides the
// others.
func RetryAfterHeaders(get func(name string) string, now time.Time) (time.Duration, bool) {
	return retryafter.Headers(get, now)
}
