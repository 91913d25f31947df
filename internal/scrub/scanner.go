package scrub

import "strings"

type scanner struct {
	s, lower string
	runEnd   int    // each run of letters is examined once
	depth    int    // recursion depth of nested
	open     int    // lists and objects without an end
	plain    [2]int // the last value without quotes
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

func (x *scanner) skipSpace(i int) int {
	for i < len(x.s) {
		switch {
		case x.s[i] == ' ' || x.s[i] == '\t' || x.s[i] == '+':
			i++
		case strings.HasPrefix(x.s[i:], "%20") || strings.HasPrefix(x.s[i:], "%09"):
			i += 3
		case strings.HasPrefix(x.s[i:], `\t`):
			i += 2
		default:
			return i
		}
	}
	return i
}

// lineEnds are the ends of lines, also escaped ones, and blanks that are escaped twice.
var lineEnds = [...]string{"\n", "\r", `\n`, `\r`, `\\n`, `\\r`, "%0a", "%0d", "%250a", "%250d", `\\t`, "%2520"}

// skipLines is like skipSpace and also skips line ends.
func (x *scanner) skipLines(i int) int {
	for begin := -1; begin != i; {
		begin = i
		i = x.skipSpace(i)
		for _, end := range lineEnds {
			if strings.HasPrefix(x.lower[i:], end) {
				i += len(end)
				break
			}
		}
	}
	return i
}

// skipFolds is like skipSpace and also skips line ends before a blank, where a header goes on.
func (x *scanner) skipFolds(i int) int {
	i = x.skipSpace(i)
	at := x.skipLines(i)
	for _, blank := range [...]string{" ", "\t", "+", `\t`, "%20", "%09", "%2520"} {
		if strings.HasSuffix(x.lower[i:at], blank) {
			return at
		}
	}
	return i
}

// quotes are the quotes around names and values, including escaped ones.
var quotes = [...]string{`\\\"`, `\"`, `\'`, `\u0022`, `\u0027`, "%2522", "%22", "%27", "&quot;", "&#34;", "&#39;",
	"&apos;", `"`, "'", "`"}

// quoteAt returns the quote that begins at i, empty for none.
func (x *scanner) quoteAt(i int) string {
	if i == len(x.s) || strings.IndexByte("\\%&\"'`", x.s[i]) < 0 {
		return ""
	}
	for _, q := range quotes {
		if strings.HasPrefix(x.lower[i:], q) {
			return q
		}
	}
	return ""
}

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
