package httpretry

import (
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

// ParseRetryAfter parses an HTTP Retry-After header: seconds, also with a fraction, or a date in
// one of the three forms of RFC 9110, from which now is subtracted. A date in the past is 0. It
// returns false for an empty value, a negative number and anything else. If the header was sent
// twice, a comma and another value may follow a date. Seconds then take precedence over the date,
// since they need no clock; other values are ignored. Numbers are capped at the longest Duration;
// retrypolicy.RetryAfter.Max limits the service's wait.
//
// A date depends on the clock. If the response has a Date header, use ParseRetryAfterAt.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	return times.ParseRetryAfter(value, now)
}

// ParseRetryAfterAt is ParseRetryAfter for a response with a Date header. It compares a date with
// the clock of the service, so a device whose clock is wrong waits for the intended time. If date
// is missing or invalid, it compares with now.
func ParseRetryAfterAt(value, date string, now time.Time) (time.Duration, bool) {
	return times.ParseRetryAfterAt(value, date, now)
}

// RetryAfterHeaders reads the delay that a service asked for from the headers of its answer:
// retry-after-ms, x-ms-retry-after-ms and x-amz-retry-after in milliseconds, then Retry-After with
// Date. The first valid header counts. get is the Get of an http.Header; it must ignore case.
//
// azcore differs: there the first header that is present decides, so an invalid one hides the
// others.
func RetryAfterHeaders(get func(name string) string, now time.Time) (time.Duration, bool) {
	return times.RetryAfterHeaders(get, now)
}
