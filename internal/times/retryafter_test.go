package times_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

const s = time.Second

// endOf1999 is the time of go-retryablehttp's tests.
var endOf1999 = time.Date(1999, 12, 31, 23, 59, 57, 0, time.UTC)

func TestParseRetryAfter(t *testing.T) {
	for _, c := range []struct {
		value string
		want  time.Duration // negative: refused
	}{
		{"2", 2 * s},
		{"Fri, 31 Dec 1999 23:59:59 GMT", 2 * s},
		{"", -1},
		{"-2", -1},
		{"Fri, 32 Dec 1999 23:59:59 GMT", -1},

		{"0", 0},
		{"007", 7 * s},
		{" 120\t", 120 * s},
		{"1.5", 1500 * time.Millisecond},
		{"0.0000000019", 1},
		{"1.", -1},
		{".5", -1},
		{"1.5.5", -1},
		{"1,5", -1},
		{"1e3", -1},
		{"+1", -1},
		{"0x10", -1},
		{"5 seconds", -1},
		{"1 2", -1},
		{"\u0661", -1}, // a digit, but not an ASCII one
		{"NaN", -1},
		{"9223372036", 9223372036 * s},
		{"9223372037", math.MaxInt64},
		{"9223372036.999999999", math.MaxInt64},
		{strings.Repeat("9", 400), math.MaxInt64},
		{strings.Repeat("0", 400) + "1", s},

		{"Friday, 31-Dec-99 23:59:59 GMT", 2 * s},
		{"Fri Dec 31 23:59:59 1999", 2 * s},
		{"Fri, 31 Dec 1999 23:59:50 GMT", 0},
		{"Thu, 01 Jan 1970 00:00:00 GMT", 0},
		{"Sat Jan  1 00:00:07 2000", 10 * s},
		{"Saturday, 01-Jan-00 00:00:07 GMT", 10 * s},
		{"Fri, 31 Dec 1999 23:59:59 PST", -1},
		{"Fri, 31 Dec 1999 23:59:59", -1},
		{"Fri, 31 Dec 1999 25:59:59 GMT", -1},
		{"1999-12-31T23:59:59Z", -1},
		{"Fri, 31 Dec 1999 23:59:59 GMT, 120", 120 * s},
		{"Fri, 31 Dec 1999 23:59:59 GMT , 1.5, 7", 1500 * time.Millisecond},
		{"Friday, 31-Dec-99 23:59:59 GMT, 120", 120 * s},
		{"Fri, 31 Dec 1999 23:59:59 GMT, Fri, 31 Dec 1999 23:59:58 GMT", 2 * s},
		{"Fri, 31 Dec 1999 23:59:59 GMT, ", 2 * s},
		{"Fri, 31 Dec 1999 23:59:59 GMT, soon", 2 * s},
		{"Fri, 32 Dec 1999 23:59:59 GMT, 120", -1},
		{"soon, 120", -1},
		{"120, 60", -1},
		{"Fri, 31 Dec 9999 23:59:59 GMT", math.MaxInt64}, // the longest duration is 292 years
	} {
		got, ok := times.ParseRetryAfter(c.value, endOf1999)
		switch {
		case ok != (c.want >= 0):
			t.Errorf("%q: %v, %v", c.value, got, ok)
		case got != max(c.want, 0):
			t.Errorf("%q: %v, want %v", c.value, got, c.want)
		}
	}
}

// A two-digit year more than 50 years ahead means the past.
func TestTwoDigitYears(t *testing.T) {
	for _, c := range []struct {
		now   int
		value string
		year  int
	}{
		{1999, "Friday, 31-Dec-49 23:59:59 GMT", 2049},
		{1999, "Friday, 31-Dec-50 23:59:59 GMT", 1950},
		{2026, "Friday, 31-Dec-76 23:59:59 GMT", 2076},
		{2026, "Friday, 31-Dec-77 23:59:59 GMT", 1977},
		{2065, "Friday, 31-Dec-70 23:59:59 GMT", 2070},
		{2065, "Friday, 31-Dec-66 23:59:59 GMT", 2066},
	} {
		now := time.Date(c.now, 1, 1, 0, 0, 0, 0, time.UTC)
		want := max(time.Date(c.year, 12, 31, 23, 59, 59, 0, time.UTC).Sub(now), 0)
		if got, ok := times.ParseRetryAfter(c.value, now); !ok || got != want {
			t.Errorf("%d, %q: %v, %v; want %v", c.now, c.value, got, ok, want)
		}
	}
}

// A device whose clock is a month behind or ahead waits for the intended time.
func TestParseAtUsesTheClockOfTheServer(t *testing.T) {
	const date, later = "Fri, 31 Dec 1999 23:59:00 GMT", "Fri, 31 Dec 1999 23:59:30 GMT"
	for _, skew := range []time.Duration{0, 30 * 24 * time.Hour, -30 * 24 * time.Hour} {
		if got, ok := times.ParseRetryAfterAt(later, date, endOf1999.Add(skew)); !ok || got != 30*s {
			t.Errorf("skew %v: %v, %v; want 30s", skew, got, ok)
		}
		if got, ok := times.ParseRetryAfterAt("7", date, endOf1999.Add(skew)); !ok || got != 7*s {
			t.Errorf("skew %v: %v, %v; want 7s", skew, got, ok)
		}
	}
	for _, bad := range []string{"", "soon"} {
		if got, ok := times.ParseRetryAfterAt("Fri, 31 Dec 1999 23:59:59 GMT", bad, endOf1999); !ok || got != 2*s {
			t.Errorf("date %q: %v, %v; want 2s", bad, got, ok)
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		headers map[string]string
		want    time.Duration // negative: none
	}{
		{"none", nil, -1},
		{"seconds", map[string]string{"retry-after": "3"}, 3 * s},
		{"milliseconds come first", map[string]string{"retry-after": "3", "x-ms-retry-after-ms": "1500",
			"x-amz-retry-after": "9"}, 1500 * time.Millisecond},
		{"the standard one of them before the others", map[string]string{"retry-after-ms": "7",
			"x-ms-retry-after-ms": "1500"}, 7 * time.Millisecond},
		{"Amazon's", map[string]string{"x-amz-retry-after": "1500", "retry-after": "1"}, 1500 * time.Millisecond},
		{"garbage hides nothing", map[string]string{"retry-after-ms": "soon", "x-ms-retry-after-ms": "-4",
			"retry-after": "3"}, 3 * s},
		{"nothing but garbage", map[string]string{"retry-after-ms": "soon", "retry-after": "later"}, -1},
		{"a date with the server's", map[string]string{"retry-after": "Fri, 31 Dec 1999 10:00:05 GMT",
			"date": "Fri, 31 Dec 1999 10:00:00 GMT"}, 5 * s},
		{"a lot", map[string]string{"retry-after-ms": "99999999999999999999"}, math.MaxInt64},
	} {
		get := func(name string) string { return c.headers[strings.ToLower(name)] }
		got, ok := times.RetryAfterHeaders(get, endOf1999)
		if ok != (c.want >= 0) || got != max(c.want, 0) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"2", "-2", "1.5", "9223372037", "Fri, 31 Dec 1999 23:59:59 GMT",
		"Friday, 31-Dec-99 23:59:59 GMT", "Fri Dec 31 23:59:59 1999", "Fri, 32 Dec 1999 23:59:59 GMT", "\x00", "1\xff"} {
		f.Add(seed, "Fri, 31 Dec 1999 23:59:58 GMT", int64(946684797))
	}
	f.Fuzz(func(t *testing.T, value, date string, unix int64) {
		now := time.Unix(unix%(1<<36), 0)
		for _, at := range []string{date, ""} {
			d, ok := times.ParseRetryAfterAt(value, at, now)
			if d < 0 || !ok && d != 0 {
				t.Fatalf("%q at %q: %v, %v", value, at, d, ok)
			}
			if ok && !strings.ContainsAny(value, "0123456789") {
				t.Fatalf("%q was understood as %v", value, d)
			}
			if d2, ok2 := times.ParseRetryAfterAt(" "+value+"\t", at, now); d2 != d || ok2 != ok {
				t.Fatalf("%q: %v, %v; with blanks around it %v, %v", value, d, ok, d2, ok2)
			}
		}
	})
}
