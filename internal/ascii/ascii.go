// Package ascii does for ASCII what strings and strconv do for Unicode, whose tables cost a board
// 12 KB of flash.
package ascii

// EqualFold reports whether a and b are equal but for the case of ASCII letters.
func EqualFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// Quote returns s in quotation marks, on one line, with a backslash before quotation marks and
// backslashes, \n for a line end, and \x and two digits for what else is not printable ASCII.
func Quote(s string) string {
	const digits = "0123456789abcdef"
	q := make([]byte, 1, len(s)+2)
	q[0] = '"'
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			q = append(q, '\\', c)
		case c == '\n':
			q = append(q, '\\', 'n')
		case c < ' ' || c > '~':
			q = append(q, '\\', 'x', digits[c>>4], digits[c&15])
		default:
			q = append(q, c)
		}
	}
	return string(append(q, '"'))
}
