package times

import (
	"strings"
	"time"
)

// MaxRetryAfter is the longest delay that a service can request from a client of a hub: one answer,
// which may not even come from the hub, must not stop a device for years. Callers apply it.
const MaxRetryAfter = time.Hour

// longest replaces larger values.
const longest time.Duration = 1<<63 - 1

// ParseRetryAfter parses an HTTP Retry-After header: seconds, also with a fraction, or a date in
// one of the three forms of RFC 9110, from which now is subtracted. A date in the past is 0. It
// returns false for anything else. If the header was sent twice, a comma and another value may
// follow a date. Seconds then take precedence, since they need no clock. Numbers are capped at the
// longest Duration.
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

// cutDate splits a date from the text after the comma that follows it. A comma after the day's name
// is part of the date.
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

// isDay reports whether s can be the day of a date: letters only.
func isDay(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return s != ""
}

// ParseRetryAfterAt is ParseRetryAfter for a response with the header Date: it compares a date with
// the clock of the service, so a wrong clock does not matter. If date is missing or invalid, it
// compares with now.
func ParseRetryAfterAt(value, date string, now time.Time) (time.Duration, bool) {
	if at, ok := httpDate(strings.Trim(date, " \t"), now); ok {
		now = at
	}
	return ParseRetryAfter(value, now)
}

// afterHeaders are the headers with a number of milliseconds, in order of precedence.
var afterHeaders = [...]string{"retry-after-ms", "x-ms-retry-after-ms", "x-amz-retry-after"}

// RetryAfterHeaders implements httpretry.RetryAfterHeaders.
func RetryAfterHeaders(get func(name string) string, now time.Time) (time.Duration, bool) {
	for _, name := range afterHeaders {
		if d, ok := decimal(strings.Trim(get(name), " \t"), time.Millisecond); ok {
			return d, true
		}
	}
	return ParseRetryAfterAt(get("Retry-After"), get("Date"), now)
}

// decimal parses digits, optionally with a point and more digits, as a number of units.
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
		n = min(n*10+digit, longest/100) // exceeds the limit for every unit, so the check below detects it
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
	if n > (longest-rest)/unit {
		return longest, true
	}
	return n*unit + rest, true
}

// The forms of a date in HTTP (RFC 9110, section 5.6.7). The last two are obsolete, but must be
// accepted.
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

// nearest shifts a date with a two-digit year by centuries, to at most 50 years ahead and less than
// 50 back, as the RFC demands.
func nearest(at, now time.Time) time.Time {
	for at.Year() > now.Year()+50 {
		at = at.AddDate(-100, 0, 0)
	}
	for at.Year() <= now.Year()-50 {
		at = at.AddDate(100, 0, 0)
	}
	return at
}
