// Package isotime writes and reads times as hubs do, 2030-01-01T00:00:00.000Z, without the layouts and zones of package time, which cost a board 15 KB of flash.
package isotime

import "time"

// Size is the length of what Append appends.
const Size = len("2030-01-01T00:00:00.000Z")

const daySeconds = 24 * 60 * 60

// Append appends t in UTC with milliseconds, cut and not rounded. Years before 0 and after 9999 become those.
func Append(dst []byte, t time.Time) []byte {
	seconds, milli := t.Unix(), t.Nanosecond()/1e6
	days := seconds / daySeconds
	seconds -= days * daySeconds
	if seconds < 0 {
		seconds += daySeconds
		days--
	}
	y, m, d := civil(days)
	switch {
	case y < 0:
		y, m, d, seconds, milli = 0, 1, 1, 0, 0
	case y > 9999:
		y, m, d, seconds, milli = 9999, 12, 31, daySeconds-1, 999
	}
	dst = append(digits(dst, int(y), 4), '-')
	dst = append(digits(dst, m, 2), '-')
	dst = append(digits(dst, d, 2), 'T')
	dst = append(digits(dst, int(seconds/3600), 2), ':')
	dst = append(digits(dst, int(seconds/60%60), 2), ':')
	dst = append(digits(dst, int(seconds%60), 2), '.')
	return append(digits(dst, milli, 3), 'Z')
}

func digits(dst []byte, n, width int) []byte {
	for unit := [...]int{1, 10, 100, 1000}[width-1]; unit > 0; unit /= 10 {
		dst = append(dst, byte('0'+n/unit%10))
	}
	return dst
}

// Parse reads a time of RFC 3339 with any number of decimals; those beyond nanoseconds are cut. The result is in UTC. False: s is no such time.
func Parse(s string) (time.Time, bool) {
	r := reader{rest: s, ok: true}
	y := r.number(4)
	r.byte('-')
	m := r.number(2)
	r.byte('-')
	d := r.number(2)
	r.byte('T')
	hour := r.number(2)
	r.byte(':')
	minute := r.number(2)
	r.byte(':')
	second := r.number(2)
	nanos := r.fraction()
	offset := r.offset()
	if !r.ok || r.rest != "" || m < 1 || m > 12 || d < 1 || d > daysIn(y, m) || hour > 23 || minute > 59 || second > 59 {
		return time.Time{}, false
	}
	seconds := days(int64(y), m, d)*daySeconds + int64(hour*3600+minute*60+second-offset)
	return time.Unix(seconds, int64(nanos)).UTC(), true
}

// reader takes a text apart from the front. Once ok is false it stays so.
type reader struct {
	rest string
	ok   bool
}

func (r *reader) number(width int) int {
	if len(r.rest) < width {
		r.ok = false
		return 0
	}
	n := 0
	for i := range width {
		c := r.rest[i]
		if c < '0' || c > '9' {
			r.ok = false
			return 0
		}
		n = 10*n + int(c-'0')
	}
	r.rest = r.rest[width:]
	return n
}

func (r *reader) byte(want byte) {
	if !r.has(want) {
		r.ok = false
	}
}

func (r *reader) has(want byte) bool {
	if r.rest == "" || r.rest[0] != want {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

func (r *reader) fraction() (nanos int) {
	if !r.has('.') {
		return 0
	}
	n := 0
	for unit := 100_000_000; n < len(r.rest) && '0' <= r.rest[n] && r.rest[n] <= '9'; unit /= 10 {
		nanos += unit * int(r.rest[n]-'0')
		n++
	}
	r.rest = r.rest[n:]
	r.ok = r.ok && n > 0
	return nanos
}

// offset reads Z or +07:00 and returns seconds east of UTC.
func (r *reader) offset() int {
	if r.has('Z') {
		return 0
	}
	sign := 1
	if !r.has('+') {
		sign = -1
		r.byte('-')
	}
	hours := r.number(2)
	r.byte(':')
	minutes := r.number(2)
	r.ok = r.ok && hours <= 23 && minutes <= 59
	return sign * (hours*3600 + minutes*60)
}

func daysIn(y, m int) int {
	switch m {
	case 2:
		if y%4 == 0 && (y%100 != 0 || y%400 == 0) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// The Gregorian calendar is counted in eras of 400 years that begin with March, so that the day which comes and goes is the last of a year.

const (
	eraDays  = 146097
	eraEpoch = 719468 // from 0000-03-01 to 1970-01-01
)

// days counts from 1970-01-01.
func days(y int64, m, d int) int64 {
	if m <= 2 {
		y--
	}
	era := floor(y, 400)
	year := y - 400*era
	month := int64((m + 9) % 12) // March is 0
	return era*eraDays + year*365 + year/4 - year/100 + (153*month+2)/5 + int64(d-1) - eraEpoch
}

// civil is the inverse of days.
func civil(n int64) (y int64, m, d int) {
	n += eraEpoch
	era := floor(n, eraDays)
	n -= era * eraDays
	year := (n - n/1460 + n/36524 - n/146096) / 365
	n -= year*365 + year/4 - year/100
	month := (5*n + 2) / 153
	d = int(n-(153*month+2)/5) + 1
	m = int(month+2)%12 + 1
	y = year + 400*era
	if m <= 2 {
		y++
	}
	return y, m, d
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
