package atmodem

import "time"

// begins reports whether text begins with prefix.
func begins(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && string(text[:len(prefix)]) == prefix
}

// field returns a field of a list that commas separate, from 1 on, nil if there is none. Commas
// between quotation marks do not separate.
func field(text []byte, number int) []byte {
	start, quoted := 0, false
	for i := 0; i <= len(text); i++ {
		switch {
		case i < len(text) && text[i] == '"':
			quoted = !quoted
		case i == len(text) || text[i] == ',' && !quoted:
			if number--; number == 0 {
				return trim(text[start:i])
			}
			start = i + 1
		}
	}
	return nil
}

// trim removes spaces at both ends.
func trim(text []byte) []byte {
	for len(text) > 0 && text[0] == ' ' {
		text = text[1:]
	}
	for len(text) > 0 && text[len(text)-1] == ' ' {
		text = text[:len(text)-1]
	}
	return text
}

// maxDigits bounds numbers, so that they fit into 32 bits.
const maxDigits = 9

// number returns the value of a decimal number, -1 for everything else.
func number(text []byte) int {
	if len(text) == 0 || len(text) > maxDigits {
		return -1
	}
	n := 0
	for _, c := range text {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// clockParts are the parts of "yy/MM/dd,hh:mm:ss": what ends each, and its range.
var clockParts = [...]struct {
	end       byte
	low, high int
}{{'/', 0, 2099}, {'/', 1, 12}, {',', 1, 31}, {':', 0, 23}, {':', 0, 59}, {0, 0, 59}}

// maxZone is the largest time zone in quarters of an hour: UTC+14.
const maxZone = 56

// parseClock returns the time of a text like "24/05/01,12:34:56+08". The year has two digits or
// four, the zone counts quarters of an hour. With utc the time is in UTC, whatever the zone.
func parseClock(text []byte, utc bool) (time.Time, bool) {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return time.Time{}, false
	}
	text = text[1 : len(text)-1]
	var v [len(clockParts)]int
	digits := 0 // of the year
	for i, p := range clockParts {
		n := 0
		for n < len(text) && '0' <= text[n] && text[n] <= '9' {
			n++
		}
		v[i] = number(text[:n])
		if v[i] < p.low || v[i] > p.high || i > 0 && n != 2 {
			return time.Time{}, false
		}
		if i == 0 {
			digits = n
		}
		text = text[n:]
		if p.end != 0 {
			if len(text) == 0 || text[0] != p.end {
				return time.Time{}, false
			}
			text = text[1:]
		}
	}
	zone := 0
	if len(text) > 0 {
		digits := field(text[1:], 1) // what may follow is about daylight saving time
		zone = number(digits)
		if text[0] != '+' && text[0] != '-' || len(digits) != 2 || zone < 0 || zone > maxZone {
			return time.Time{}, false
		}
		if text[0] == '-' {
			zone = -zone
		}
	}
	switch year := v[0]; {
	case digits == 2 && year < 70:
		v[0] += 2000
	case digits == 2:
		v[0] += 1900
	case digits != 4:
		return time.Time{}, false
	}
	t := time.Date(v[0], time.Month(v[1]), v[2], v[3], v[4], v[5], 0, time.UTC)
	if t.Day() != v[2] {
		return time.Time{}, false // such as February 30
	}
	if !utc {
		t = t.Add(-time.Duration(zone) * 15 * time.Minute)
	}
	return t, true
}
