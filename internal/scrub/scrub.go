// Package scrub takes secrets out of error texts before they are logged or served. Hubline's own errors hold none; but an error may come from a
// function of the program, such as a token source that quotes the URL it asked.
package scrub

import "strings"

const hidden = "(hidden)"

// marks are followed by a secret. They are in lower case and match in any.
var marks = [...]string{"sig=", "sig%3d", "signature=", "sharedaccesskey=", "accountkey=", "key=", "password=", "pwd=", "secret=", "token=", "bearer "}

// Text returns s without what looks like a secret: the value after names such as sig=, SharedAccessKey=, password= and token=, and the user's part of
// a URL. It returns s itself when there is nothing to hide, and so for what it returned before.
func Text(s string) string {
	lower := lowered(s)
	var out strings.Builder
	done := 0 // s[:done] is in out
	for i := 0; i < len(s); {
		from, to := secret(s, lower, i)
		if from == to {
			i++
			continue
		}
		out.WriteString(s[done:from])
		out.WriteString(hidden)
		done, i = to, to
	}
	if done == 0 {
		return s
	}
	out.WriteString(s[done:])
	return out.String()
}

// Error is Text of err's text, empty without an error.
func Error(err error) string {
	if err == nil {
		return ""
	}
	return Text(err.Error())
}

// secret returns where the secret is that something at i announces; from == to when there is none.
func secret(s, lower string, i int) (from, to int) {
	if strings.HasPrefix(s[i:], "://") {
		from = i + len("://")
		host := s[from:]
		if end := strings.IndexAny(host, "/?# \t\r\n\"'"); end >= 0 {
			host = host[:end]
		}
		if at := strings.LastIndexByte(host, '@'); at > 0 {
			return from, from + at
		}
		return 0, 0
	}
	if inWord(lower, i) {
		return 0, 0
	}
	for _, mark := range marks {
		if !strings.HasPrefix(lower[i:], mark) {
			continue
		}
		from = i + len(mark)
		end := "&;, \t\r\n\"'`)]}"
		if from < len(s) && (s[from] == '"' || s[from] == '\'') {
			end = s[from : from+1]
			from++
		}
		if rest, done := strings.CutPrefix(s[from:], hidden); done && (rest == "" || strings.IndexByte(end, rest[0]) >= 0) {
			return 0, 0
		}
		if n := strings.IndexAny(s[from:], end); n >= 0 {
			return from, from + n
		}
		return from, len(s)
	}
	return 0, 0
}

// inWord reports whether a letter or digit stands before i that is not the end of an escape: of %26 as in URLs, \u0026 as in JSON, \n.
func inWord(lower string, i int) bool {
	if i == 0 || !alphanumeric(lower[i-1]) {
		return false
	}
	return !(i >= 3 && lower[i-3] == '%' || i >= 6 && lower[i-6:i-4] == `\u` || i >= 2 && lower[i-2] == '\\')
}

// lowered is s with ASCII letters in lower case, byte for byte.
func lowered(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func alphanumeric(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
