package scrub

import "strings"

type scanner struct {
	s, lower string
	runEnd   int    // each run of letters is examined once
	depth    int    // recursion depth of nested
	nextAt   [2]int // the next "@" and "%40"
	base64   base64 // the last text of base64
}

// secret returns the secret that starts or is announced at i. Without one, from >= to, and the
// search continues at to if that is after i.
func (x *scanner) secret(i int) (from, to int) {
	c := x.s[i]
	switch {
	case c == ':' || c == '%':
		return x.userinfo(i)
	case c == '-':
		if from, to := x.pem(i); to > from {
			return from, to
		}
		return x.flag(i)
	case i < x.runEnd || !inName(c):
		return 0, 0
	}
	// A run of letters, digits and the like: a name, or a secret by its form.
	end := i
	for end < len(x.s) && inName(x.s[end]) {
		end++
	}
	x.runEnd = end
	begin := i + x.escapes(i, end)
	if to := x.byForm(begin); to > begin {
		return begin, to
	}
	if from, to := x.scheme(begin, end); to > from {
		return from, to
	}
	return x.named(begin, end)
}

func inName(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// escapes returns how many bytes of the run from i to end belong to an escape that starts before
// it: %26 in URLs, also %2526, \u0026 in JSON, and \n.
func (x *scanner) escapes(i, end int) (n int) {
	if i == 0 {
		return 0
	}
	run := x.lower[i:end]
	switch x.s[i-1] {
	case '%':
		for strings.HasPrefix(run[n:], "25") {
			n += 2
		}
		if len(run) >= n+2 && isHex(run[n]) && isHex(run[n+1]) {
			n += 2
		}
	case '\\':
		switch {
		case len(run) >= 5 && run[0] == 'u' && isHex(run[1]) && isHex(run[2]) && isHex(run[3]) && isHex(run[4]):
			n = 5
		case len(run) >= 3 && run[0] == 'x' && isHex(run[1]) && isHex(run[2]):
			n = 3
		case len(run) >= 1 && strings.IndexByte("nrtbf", run[0]) >= 0:
			n = 1
		}
	}
	return n
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

// prefix returns the length of the first of texts that begins at i, 0 for none.
func (x *scanner) prefix(i int, texts ...string) int {
	for _, text := range texts {
		if strings.HasPrefix(x.lower[i:], text) {
			return len(text)
		}
	}
	return 0
}

// skip returns the end of the run of texts that begins at i.
func (x *scanner) skip(i int, texts ...string) int {
	for n := -1; n != 0; i += n {
		n = x.prefix(i, texts...)
	}
	return i
}

// blanks are blanks, then the ends of lines and the blanks that are escaped twice.
var blanks = [...]string{" ", "\t", "+", "%20", "%09", `\t`,
	"\n", "\r", `\n`, `\r`, `\\n`, `\\r`, "%0a", "%0d", "%250a", "%250d", `\\t`, "%2520"}

func (x *scanner) skipSpace(i int) int { return x.skip(i, blanks[:6]...) }

// skipLines is like skipSpace and also skips line ends.
func (x *scanner) skipLines(i int) int { return x.skip(i, blanks[:]...) }

// skipFolds is like skipLines if a blank is last, where a header goes on; else it returns i.
func (x *scanner) skipFolds(i int) int {
	if next := x.skipLines(i); next > i && strings.IndexByte(" \t+t09", x.s[next-1]) >= 0 {
		return next
	}
	return i
}

// quotes are the quotes around names and values, including escaped ones.
var quotes = [...]string{`\\\"`, `\"`, `\'`, `\u0022`, `\u0027`, "%2522", "%22", "%27", "&quot;", "&#34;", "&#39;",
	"&apos;", `"`, "'", "`"}

// quoteAt returns the length of the quote that begins at i, 0 for none.
func (x *scanner) quoteAt(i int) int { return x.prefix(i, quotes[:]...) }

// lowered returns s with ASCII letters in lower case; byte offsets stay the same.
func lowered(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
