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
	at := end
	quote := x.quoteAt(at)
	skip := x.skipSpace
	if quote != "" {
		skip = x.skipLines // JSON goes on there
	}
	at = skip(at + len(quote))
	for _, sep := range separators {
		if !strings.HasPrefix(x.lower[at:], sep.text) {
			continue
		}
		at += len(sep.text)
		if class == inAssignment && sep.prose && quote == "" {
			return 0, 0
		}
		prose := sep.prose && quote == "" && at < len(x.s) && x.s[at] == ' '
		next := skip(at)
		at = x.skipSpace(at)
		if sep.prose || strings.HasSuffix(sep.text, "3a") {
			fold := x.skipFolds(at)
			switch {
			case x.startsJSON(next) && !x.startsNamed(next):
				at = next
			case quote == "" && fold > at:
				at, prose = fold, sep.prose
			}
		}
		if at == len(x.s) {
			return 0, 0
		}
		if class == header {
			return x.header(at, prose, quote != "")
		}
		if class != password && (sep.prose && x.s[at] == '{' ||
			strings.HasSuffix(sep.text, "3a") && strings.HasSuffix(x.escapedBracket(at), "7b")) {
			return 0, 0 // its members are scanned separately
		}
		if from, to = x.value(at, sep.escaped, quote != ""); from != at { // in quotes or brackets
			if q := x.quoteAt(at); q != "" && x.attribute(x.skipSpace(min(to+len(q), len(x.s)))) {
				return 0, 0 // the name follows
			}
			return from, to
		}
		more := x.nested(from)
		if more <= to && prose && class != password && isWord(x.s[from:to]) {
			return 0, 0
		}
		return from, max(to, more)
	}
	if x.attribute(at) { // <add key="Password" value="..."/>
		return x.value(at+len("value="), false, false)
	}
	return 0, 0
}

// startsNamed reports whether the quoted name of a secret begins at i, before its separator.
func (x *scanner) startsNamed(i int) bool {
	quote := x.quoteAt(i)
	if quote == "" {
		return false
	}
	from, to := x.value(i, false, false)
	if nameClass(x.s[from:to]) == harmless || to == len(x.s) {
		return false
	}
	at := x.skipLines(min(to+len(quote), len(x.s)))
	for _, sep := range separators {
		if strings.HasPrefix(x.lower[at:], sep.text) {
			return true
		}
	}
	return false
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

func (x *scanner) attribute(at int) bool { return strings.HasPrefix(x.lower[at:], "value=") }

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
