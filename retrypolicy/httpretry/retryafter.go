package httpretry

import (
	"strings"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
)

// ParseRetryAfter reads an HTTP Retry-After header: seconds, with a fraction if need be, or a date
// in one of the three forms of RFC 9110, from which now is taken off. A date in the past is 0. It
// reports false for what is neither: an empty value, a negative number, garbage. A date may be
// followed by a comma and another value, as where the header was sent twice: seconds count before
// the date, as in aws-sdk-js-v3, for they need no clock, and anything else is ignored. Numbers
// beyond the longest Duration are that; limit what a service can ask for by RetryAfter.Max.
//
// A date is only as good as the clock: with the response's Date header at hand use
// ParseRetryAfterAt.
func ParseRetryAfter(value string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if d, ok := decimal(value, time.Second); ok {
		return d, true
	}
	value, rest := cutDate(value)
	at, ok := httpDate(value, now)
	if !ok {
		return 0, false
	}
	if d, ok := decimal(rest, time.Second); ok {
		return d, true
	}
	return max(at.Sub(now), 0), true
}

// cutDate cuts what follows a date, which has a comma after its day, after another comma.
func cutDate(s string) (date, rest string) {
	day, after, ok := strings.Cut(s, ",")
	if !ok || !isDay(day) {
		return s, ""
	}
	end := strings.IndexByte(after, ',')
	if end < 0 {
		return s, ""
	}
	rest, _, _ = strings.Cut(after[end+1:], ",")
	return strings.TrimRight(s[:len(day)+1+end], " \t"), strings.Trim(rest, " \t")
}

// isDay reports whether s is the day of a date: letters only.
func isDay(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return s != ""
}

// ParseRetryAfterAt is ParseRetryAfter for a response with a Date header: a date is compared with
// the service's own clock instead of now, so a device whose clock is wrong waits as long as was
// meant. Where date is missing or garbage, now counts.
func ParseRetryAfterAt(value, date string, now time.Time) (time.Duration, bool) {
	if at, ok := httpDate(strings.Trim(date, " \t"), now); ok {
		now = at
	}
	return ParseRetryAfter(value, now)
}

// afterHeaders are the headers with a number of milliseconds, in the order of precedence.
var afterHeaders = [...]string{"retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"}

// RetryAfterHeaders reads the wait that a service asked for from the headers of its answer:
// retry-after-ms, x-ms-retry-after-ms, x-amz-retry-after, all in milliseconds, then Retry-After
// with Date. The first that makes sense counts. get is the Get of an http.Header; names come in any
// case.
//
// azcore differs: there the first header that is present decides, so an invalid one hides the
// others.
func RetryAfterHeaders(get func(name string) string, now time.Time) (time.Duration, bool) {
	for _, name := range afterHeaders {
		if d, ok := decimal(strings.Trim(get(name), " \t"), time.Millisecond); ok {
			return d, true
		}
	}
	return ParseRetryAfterAt(get("Retry-After"), get("Date"), now)
}

// decimal reads digits, with a point and more digits if need be, as so many units.
func decimal(s string, unit time.Duration) (time.Duration, bool) {
	whole, part, point := strings.Cut(s, ".")
	if whole == "" || point && part == "" {
		return 0, false
	}
	n := time.Duration(0)
	for i := 0; i < len(whole); i++ {
		digit := time.Duration(whole[i]) - '0'
		if digit < 0 || digit > 9 {
			return 0, false
		}
		n = min(n*10+digit, delay.Longest/100) // far beyond every unit, so that the product below tells
	}
	scale := unit
	rest := time.Duration(0)
	for i := 0; i < len(part); i++ {
		digit := time.Duration(part[i]) - '0'
		if digit < 0 || digit > 9 {
			return 0, false
		}
		scale /= 10
		rest += digit * scale
	}
	if n > (delay.Longest-rest)/unit {
		return delay.Longest, true
	}
	return n*unit + rest, true
}

// The forms of a date in HTTP (RFC 9110, section 5.6.7). The last two are obsolete and must be
// understood all the same.
const (
	imfDate    = "Mon, 02 Jan 2006 15:04:05 GMT"
	rfc850Date = "Monday, 02-Jan-06 15:04:05 GMT"
	ctimeDate  = time.ANSIC
)

func httpDate(s string, now time.Time) (time.Time, bool) {
	if at, err := time.Parse(imfDate, s); err == nil {
		return at, true
	}
	if at, err := time.Parse(rfc850Date, s); err == nil {
		return nearest(at, now), true
	}
	at, err := time.Parse(ctimeDate, s)
	return at, err == nil
}

// nearest moves a date whose year has two digits by centuries, to where it is at most 50 years
// ahead and less than 50 back, as the RFC asks.
func nearest(at, now time.Time) time.Time {
	for at.Year() > now.Year()+50 {
		at = at.AddDate(-100, 0, 0)
	}
	for at.Year() <= now.Year()-50 {
		at = at.AddDate(100, 0, 0)
	}
	return at
}
