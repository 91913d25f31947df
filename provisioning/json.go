package provisioning

import (
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
)

// stringMember returns the text of a member. It is empty if the member is missing, null or not a
// string.
func stringMember(object []byte, name string) string {
	raw, _ := jsonscan.Member(object, name)
	return unquote(raw)
}

// numberMember returns the value of a member that is a number, or a number in quotation marks. It
// is 0 if there is none.
func numberMember(object []byte, name string) int {
	raw, _ := jsonscan.Member(object, name)
	if len(raw) > 1 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	n, ok := jsonscan.Int(raw)
	if !ok || n < 0 || n > maxCode {
		return 0
	}
	return int(n)
}

// maxCode is more than any code of the service.
const maxCode = 999_999

// valueMember returns the JSON of a member, nil if it is missing or null.
func valueMember(object []byte, name string) []byte {
	raw, ok := jsonscan.Member(object, name)
	if !ok || string(raw) == "null" {
		return nil
	}
	return raw
}

// unquote returns the text of a JSON string that package jsonscan found valid; empty for other
// values.
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	raw = raw[1 : len(raw)-1]
	text := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := escaped(raw[i+1:])
			i += 4
			if low := rune(0); r>>10 == 0xd800>>10 && len(raw) > i+6 && raw[i+1] == '\\' && raw[i+2] == 'u' {
				if low = escaped(raw[i+3:]); low>>10 == 0xdc00>>10 {
					r = 0x10000 + (r&0x3ff)<<10 + low&0x3ff
					i += 6
				}
			}
			text = utf8.AppendRune(text, r) // a lone surrogate becomes U+FFFD
		default: // a quotation mark, a backslash or a slash
			text = append(text, raw[i])
		}
	}
	return string(text)
}

// escaped returns the number in four hexadecimal digits. A board would link the errors of
// strconv.ParseUint.
func escaped(digits []byte) (r rune) {
	for _, c := range digits[:4] {
		d := rune(c&0xf) + rune(c>>6)*9 // a letter is 9 more than its low bits
		r = r<<4 | d
	}
	return r
}

// eachText calls f with the text of each string in an array of strings. It returns false if raw is
// something else.
func eachText(raw []byte, f func(text string)) bool {
	if len(raw) < 2 || raw[0] != '[' {
		return false
	}
	for i := 1; i < len(raw); {
		switch raw[i] {
		case ' ', '\t', '\n', '\r', ',':
			i++
		case ']':
			return true
		case '"':
			from := i
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
			i++
			f(unquote(raw[from:i]))
		default:
			return false
		}
	}
	return false
}
