package scrub

import (
	"slices"
	"strings"
)

// value returns the value that begins at i, without the quote or bracket that opens it. It ends at
// the first quote like that if the text before has no escapes, lines and names, else as rest says.
// A list or an object ends with the text.
func (x *scanner) value(i int, escaped bool) (from, to int) {
	if from = i + x.quoteAt(i); from > i {
		quote := x.lower[i:from]
		n := strings.Index(x.lower[from:], quote) // each part of the text is searched once for each quote
		if n < 0 || strings.ContainsAny(x.s[from:from+n], "\\\n") || !x.ends(from+n+len(quote)) ||
			nameClass(lastName(x.s[from:from+n])) != harmless && x.prefix(from+n+len(quote), ",", "}") == 0 {
			return from, x.rest(from)
		}
		return from, from + n
	}
	if x.prefix(i, "[", "{") > 0 {
		return i + 1, len(x.s)
	}
	if escaped && x.prefix(i, "%7b", "%5b", "%257b", "%255b") > 0 {
		return i, len(x.s)
	}
	return i, x.unquoted(i, escaped)
}

// lastName returns what may be a name at the end of a text in quotes, as in "?sig=".
func lastName(text string) string {
	text = strings.TrimRight(strings.TrimSuffix(text, "&quot;"), "=:")
	return text[strings.LastIndexAny(text, "?&;#")+1:]
}

// rest returns the end of the line that i is in. If that has a quote or a bracket, behind which a
// value may go on, or if the next line begins with a blank, as that of a header that goes on, it
// returns the end of the text.
func (x *scanner) rest(i int) int {
	line, _, _ := strings.Cut(x.s[i:], "\n")
	to := i + len(line)
	if strings.ContainsAny(line, "[{\"") || x.skipFolds(to) > to {
		return len(x.s)
	}
	return to
}

// unquoted returns the end of a value without quotes.
func (x *scanner) unquoted(i int, escaped bool) int {
	if strings.HasPrefix(x.s[i:], hidden) && x.ends(i+len(hidden)) {
		return i + len(hidden)
	}
	for ; i < len(x.s); i++ {
		switch c := x.s[i]; {
		case strings.IndexByte("&; \t\r\n<>|", c) >= 0:
			return i
		case strings.IndexByte(",\"'`)]}", c) >= 0:
			if x.ends(i + 1) {
				return i
			}
		case c == '\\':
			if x.prefix(i, `\u0026`, `\u0022`, `\"`, `\\"`, `\r\n`) > 0 || x.prefix(i, `\n`) > 0 && x.ends(i+2) {
				return i
			}
		case c == '%' && escaped:
			if x.prefix(i, "%26", "%2526", "%22", "%27", "%3b", "%20", "%0a", "%0d", "%3c", "%7d") > 0 {
				return i
			}
		}
	}
	return len(x.s)
}

// ends reports whether a value may end before i.
func (x *scanner) ends(i int) bool {
	return i >= len(x.s) || strings.IndexByte("&;, \t\r\n\"'`)]}<>:.\\|/%", x.s[i]) >= 0
}

// header returns the value of a header that holds credentials, without the scheme: the rest of the
// line.
func (x *scanner) header(i int) (from, to int) {
	word := x.unquoted(i, false)
	if next := x.skipSpace(word); next > word && x.isScheme(i, word) {
		i = next
	}
	return i, x.rest(i)
}

// inSentence reports whether a word of a sentence begins at i, rather than a value.
func (x *scanner) inSentence(i int) bool {
	to := x.unquoted(i, false)
	return x.quoteAt(i) == 0 && isWord(x.s[i:to]) && !x.isScheme(i, to)
}

func (x *scanner) isScheme(from, to int) bool {
	name := x.lower[from:to]
	return slices.Contains(schemes[:], name) || name == "sharedaccesssignature" || name == "digest" || name == "token"
}
