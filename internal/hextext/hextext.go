// Package hextext reads packets as tests write them down.
package hextext

import "strings"

// Decode decodes pairs of hex digits, in capitals. Text between single quotes is literal; spaces
// are ignored.
func Decode(s string) (b []byte) {
	for s != "" {
		switch {
		case s[0] == ' ':
			s = s[1:]
		case s[0] == '\'':
			end := strings.IndexByte(s[1:], '\'') + 1
			b = append(b, s[1:end]...)
			s = s[end+1:]
		default:
			b = append(b, digit(s[0])<<4|digit(s[1]))
			s = s[2:]
		}
	}
	return b
}

func digit(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c - 'A' + 10
}
