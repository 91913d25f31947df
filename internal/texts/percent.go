package texts

// Percent-encoding is that of RFC 3986, section 2.1, in the form that a hub requires in tokens,
// topics and paths: every byte outside the unreserved set is escaped, with upper-case digits, and a
// space is %20.

const upperHex = "0123456789ABCDEF"

// AppendEscaped appends s, escaped, to dst and returns the longer slice. It allocates only to grow
// dst. Where it is called, copies of it would take 4 KB of a program for ARM.
//
//go:noinline
func AppendEscaped(dst []byte, s string) []byte {
	start := 0 // of the bytes that are appended as they are, in one copy
	for i := 0; i < len(s); i++ {
		if b := s[i]; !unreserved(b) {
			dst = append(append(dst, s[start:i]...), '%', upperHex[b>>4], upperHex[b&15])
			start = i + 1
		}
	}
	return append(dst, s[start:]...)
}

// EscapedSize returns the number of bytes that AppendEscaped appends.
func EscapedSize(s string) int {
	n := len(s)
	for i := 0; i < len(s); i++ {
		if !unreserved(s[i]) {
			n += 2
		}
	}
	return n
}

// unreserved reports whether b is in the set of RFC 3986 section 2.3, without a branch to predict:
// in ids letters and digits alternate.
func unreserved(b byte) bool { return unreservedBits[b>>5]>>(b&31)&1 != 0 }

var unreservedBits = [8]uint32{
	1: 1<<('-'-32) | 1<<('.'-32) | (1<<10-1)<<('0'-32),
	2: (1<<26-1)<<('A'-64) | 1<<('_'-64),
	3: (1<<26-1)<<('a'-96) | 1<<('~'-96),
}

// AppendUnescaped appends the unescaped s to dst. ok is false if two hexadecimal digits are missing
// after a "%"; "+" stays "+".
func AppendUnescaped(dst []byte, s string) (out []byte, ok bool) {
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			dst = append(dst, s[i])
			continue
		}
		if i+2 >= len(s) {
			return dst, false
		}
		hi, ok1 := digit(s[i+1])
		lo, ok2 := digit(s[i+2])
		if !ok1 || !ok2 {
			return dst, false
		}
		dst = append(dst, hi<<4|lo)
		i += 2
	}
	return dst, true
}

func digit(b byte) (byte, bool) {
	switch {
	case '0' <= b && b <= '9':
		return b - '0', true
	case 'a' <= b && b <= 'f':
		return b - 'a' + 10, true
	case 'A' <= b && b <= 'F':
		return b - 'A' + 10, true
	}
	return 0, false
}
