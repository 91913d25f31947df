package cloudevents

import (
	"strings"

	"github.com/hubline-iot/hubline/internal/ascii"
)

// mediaType is a parsed media type of RFC 2045, section 5.1. The zero value stands for none.
type mediaType struct {
	major, minor string
	params       string // from the first ";" on, empty for none
	charset      string
	only         bool // charset is the only parameter
}

// parseMediaType parses without building a map, unlike package mime.
func parseMediaType(s string) (m mediaType, ok bool) {
	essence := s
	if i := strings.IndexByte(s, ';'); i >= 0 {
		essence, m.params = s[:i], s[i:]
	}
	m.major, m.minor, ok = strings.Cut(strings.Trim(essence, " \t"), "/")
	if !ok || !token(m.major) || !token(m.minor) {
		return mediaType{}, false
	}
	count := 0
	for rest := m.params; rest != ""; count++ {
		rest = strings.TrimLeft(rest[1:], " \t")
		name, after, found := strings.Cut(rest, "=")
		if !found || !token(name) {
			return mediaType{}, false
		}
		var value string
		if value, rest, ok = parameter(after); !ok {
			return mediaType{}, false
		}
		if ascii.EqualFold(name, "charset") {
			m.charset = value
		}
		rest = strings.TrimLeft(rest, " \t")
		if rest != "" && rest[0] != ';' {
			return mediaType{}, false
		}
	}
	m.only = count == 1 && m.charset != ""
	return m, true
}

// parameter splits off the value at the beginning of s. A quoted value stays as it was written,
// without its quotes.
func parameter(s string) (value, rest string, ok bool) {
	if strings.HasPrefix(s, `"`) {
		for i := 1; i < len(s); i++ {
			switch s[i] {
			case '\\':
				i++
			case '"':
				return s[1:i], s[i+1:], true
			}
		}
		return "", "", false
	}
	end := strings.IndexAny(s, "; \t")
	if end < 0 {
		end = len(s)
	}
	return s[:end], s[end:], token(s[:end])
}

func token(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?=`, c) >= 0 {
			return false
		}
	}
	return s != ""
}

// isJSON reports whether m declares JSON: */json or */*+json.
func (m mediaType) isJSON() bool {
	return ascii.EqualFold(m.minor, "json") || hasSuffix(m.minor, "+json")
}

// isText reports whether m declares text in UTF-8, which JSON holds as a string.
func (m mediaType) isText() bool {
	return (ascii.EqualFold(m.major, "text") || ascii.EqualFold(m.minor, "xml") || hasSuffix(m.minor, "+xml")) &&
		(m.charset == "" || ascii.EqualFold(m.charset, "utf-8") || ascii.EqualFold(m.charset, "us-ascii"))
}

func hasSuffix(s, suffix string) bool {
	return len(s) > len(suffix) && ascii.EqualFold(s[len(s)-len(suffix):], suffix)
}
