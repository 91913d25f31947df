package scrub

import "strings"

// separators stand between a name and its value; longer ones come first.
var separators = [...]struct {
	text    string
	escaped bool // in a URL within a URL: an escape ends the value, too
	prose   bool // may also occur in a sentence
}{
	{"%253d", true, false}, {"%253a", true, false}, {"%3d", true, false}, {"%3a", true, false},
	{`\u003d`, false, false}, {`\u003a`, false, false}, {"&#61;", false, false},
	{"=>", false, false}, {":=", false, false}, {"==", false, false}, {"=", false, false}, {":", false, true},
	{">", false, false},
}

// named returns the value after the name between begin and end.
func (x *scanner) named(begin, end int) (from, to int) {
	class := nameClass(x.s[begin:end])
	if class == harmless || class == inQuery && !x.inQuery(begin) {
		return 0, 0
	}
	at, quoted := x.skipSpace(end), false
	if n := x.quoteAt(end); n > 0 {
		at, quoted = x.skipLines(end+n), true // JSON goes on there
	}
	for _, sep := range separators {
		if !strings.HasPrefix(x.lower[at:], sep.text) {
			continue
		}
		at += len(sep.text)
		prose := sep.prose && !quoted && class != password
		if prose && class == inAssignment {
			return 0, 0
		}
		spaced := strings.HasPrefix(x.s[at:], " ")
		at = x.skipSpace(at)
		colon := sep.prose || strings.HasSuffix(sep.text, "3a")
		next := x.skipFolds(at)
		if quoted {
			next = x.skipLines(at)
		}
		if colon && next > at { // the value begins on a later line
			if prose && x.inSentence(next) {
				return 0, 0
			}
			return next, len(x.s)
		}
		prose = prose && spaced
		if class == header && prose && x.inSentence(at) {
			return 0, 0
		}
		if class == header {
			return x.header(at)
		}
		if class != password && (sep.prose && x.prefix(at, "{") > 0 ||
			!sep.prose && colon && x.prefix(at, "%7b", "%257b") > 0) {
			return 0, 0 // its members are scanned separately
		}
		if from, to = x.value(at, sep.escaped); from != at { // in quotes or brackets
			return from, to
		}
		more := x.nested(at)
		if prose && more <= to && isWord(x.s[at:to]) {
			return 0, 0
		}
		return at, max(to, more)
	}
	if n := x.prefix(at, "value="); n > 0 { // <add name="Password" value="..."/>
		return x.value(at+n, false)
	}
	return 0, 0
}

// nested returns the end of a secret that the text at i announces, as in "token: Bearer x".
func (x *scanner) nested(i int) (to int) {
	if x.depth == 8 {
		return 0
	}
	x.depth++
	defer func() { x.depth-- }()
	end := i
	for end < len(x.s) && inName(x.s[end]) {
		end++
	}
	if _, to = x.scheme(i, end); to == 0 {
		_, to = x.named(i, end)
	}
	return to
}

// inQuery reports whether the name at begin is a parameter in a URL.
func (x *scanner) inQuery(begin int) bool {
	before := x.lower[:begin]
	for _, mark := range [...]string{"?", "&", "&amp;", "%3f", "%26", "%253f", "%2526", `\u0026`, `\u003f`, "#"} {
		if strings.HasSuffix(before, mark) {
			return true
		}
	}
	return false
}
