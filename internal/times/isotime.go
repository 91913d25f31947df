package times

import "time"

// ISOSize is the number of bytes that AppendISO appends.
const ISOSize = len("2030-01-01T00:00:00.000Z")

const (
	daySeconds = 24 * 60 * 60
	first      = -62167219200 // 0000-01-01T00:00:00Z
	last       = 253402300799 // 9999-12-31T23:59:59Z
)

// AppendISO appends t in UTC with milliseconds, truncated. Times before year 0 and after 9999
// become the first and last representable time.
func AppendISO(dst []byte, t time.Time) []byte {
	seconds, milli := t.Unix(), t.Nanosecond()/1e6
	if seconds < first {
		seconds, milli = first, 0
	} else if seconds > last {
		seconds, milli = last, 999
	}
	day := int((seconds - first) / daySeconds)
	second := int((seconds - first) % daySeconds)
	y, m, d := civil(day)
	dst = digits(dst, y, 1000, '-')
	dst = digits(dst, m, 10, '-')
	dst = digits(dst, d, 10, 'T')
	dst = digits(dst, second/3600, 10, ':')
	dst = digits(dst, second/60%60, 10, ':')
	dst = digits(dst, second%60, 10, '.')
	return digits(dst, milli, 100, 'Z')
}

// digits appends n with leading zeros, then behind; unit is the value of the first digit.
func digits(dst []byte, n, unit int, behind byte) []byte {
	for ; unit > 0; unit /= 10 {
		dst = append(dst, byte('0'+n/unit%10))
	}
	return append(dst, behind)
}

// ParseISO parses an RFC 3339 time with any number of decimals, truncated to nanoseconds. The
// result is in UTC. It returns false for other texts.
func ParseISO(s string) (time.Time, bool) {
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
	seconds := first + int64(days(y, m, d))*daySeconds + int64(hour*3600+minute*60+second-offset)
	return time.Unix(seconds, int64(nanos)).UTC(), true
}

// reader parses a text from the front. Once ok is false, it stays false.
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

// offset parses Z or +07:00 and returns seconds east of UTC.
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

// Days are counted from 0000-01-01. Years begin with March, so the leap day is the last day of a
// year. Year 0 began on 1 March of the year before, 306 days before day 0.

const before = 306

// days returns the number of days since 0000-01-01.
func days(y, m, d int) int {
	if m > 2 {
		y++ // the year that began in March
	}
	month := (m + 9) % 12 // March is 0
	return y*365 + leaps(y) + (153*month+2)/5 + d - 1 - before
}

// leaps returns how many of the years before y have a 29 February. Year 0 has one.
func leaps(y int) int {
	if y == 0 {
		return 0
	}
	y--
	return y/4 - y/100 + y/400 + 1
}

// civil is the inverse of days.
func civil(n int) (y, m, d int) {
	n += before
	y = n / 366
	for (y+1)*365+leaps(y+1) <= n {
		y++
	}
	n -= y*365 + leaps(y)
	month := (5*n + 2) / 153
	d = n - (153*month+2)/5 + 1
	m = (month+2)%12 + 1
	if m > 2 {
		y--
	}
	return y, m, d
}
