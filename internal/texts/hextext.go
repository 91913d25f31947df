package texts

import "strings"

// FromHex decodes packets as tests write them: pairs of hex digits. Text between single quotes is
// literal; spaces are ignored.
func FromHex(s string) (b []byte) {
	for s != "" {
		switch {
		case s[0] == ' ':
			s = s[1:]
		case s[0] == '\'':
			end := strings.IndexByte(s[1:], '\'') + 1
			b = append(b, s[1:end]...)
			s = s[end+1:]
		default:
			high, _ := digit(s[0])
			low, _ := digit(s[1])
			b = append(b, high<<4|low)
			s = s[2:]
		}
	}
	return b
}
