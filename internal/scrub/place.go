package scrub

import "strings"

// maxUserinfo bounds the search for the end of a URL's user and password.
const maxUserinfo = 1 << 10

// userinfo returns the "user:password" of a URL, which may be escaped within another URL.
func (x *scanner) userinfo(i int) (from, to int) {
	end, at := "/?#\\<> \t\r\n\"'`|", "@"
	rest := x.lower[i:]
	switch {
	case strings.HasPrefix(rest, "://"):
		from = i + len("://")
	case strings.HasPrefix(rest, "%3a%2f%2f"):
		from, end, at = i+len("%3a%2f%2f"), "/?#&\\<> \t\r\n\"'`|", "%40"
	default:
		return 0, 0
	}
	host := x.lower[from:min(len(x.s), from+maxUserinfo)]
	if n := strings.IndexAny(host, end); n >= 0 {
		host = host[:n]
	}
	if at == "%40" {
		if n := strings.Index(host, "%2f"); n >= 0 {
			host = host[:n]
		}
	}
	if n := strings.LastIndex(host, at); n > 0 {
		return from, from + n
	}
	return 0, 0
}

// flag returns the secret in "--password value" and "-u user:password" of a command line.
func (x *scanner) flag(i int) (from, to int) {
	if i > 0 && strings.IndexByte(" \t\"'`[(", x.s[i-1]) < 0 {
		return 0, 0
	}
	if rest := x.s[i:]; strings.HasPrefix(rest, "-u ") || strings.HasPrefix(rest, "-u\t") {
		from = i + len("-u ")
		if to = x.unquoted(from, false); strings.IndexByte(x.s[from:to], ':') >= 0 {
			return from, to
		}
		return 0, 0
	}
	if !strings.HasPrefix(x.s[i:], "--") {
		return 0, 0
	}
	name := i + 2
	end := name
	for end < len(x.s) && inName(x.s[end]) {
		end++
	}
	if end == len(x.s) || x.s[end] != ' ' || nameClass(x.s[name:end]) == harmless || end+1 == len(x.s) ||
		x.s[end+1] == '-' {
		return 0, 0
	}
	return x.value(end+1, false)
}

// schemes are HTTP authentication schemes, which precede a secret.
var schemes = [...]string{"bearer", "basic", "negotiate", "ntlm", "sharedkey", "aws4-hmac-sha256"}

// scheme returns the secret after the name of a scheme.
func (x *scanner) scheme(begin, end int) (from, to int) {
	if end >= len(x.s) || x.s[end] != ' ' && x.s[end] != '\t' && x.s[end] != '+' && !strings.HasPrefix(x.s[end:], "%20") {
		return 0, 0
	}
	name := x.lower[begin:end]
	for _, s := range schemes {
		if name != s {
			continue
		}
		from = x.skipSpace(end)
		to = x.unquoted(from, false)
		if isWord(x.s[from:to]) || isParameter(x.s[from:to]) {
			return 0, 0
		}
		return from, to
	}
	return 0, 0
}

// isWord reports whether s is a word of a sentence, rather than a secret.
func isWord(s string) bool {
	s = strings.Trim(s, ".,:;!?")
	for i := range len(s) {
		if c := s[i]; !('a' <= c && c <= 'z' || c == '\'' || c == '-' || i == 0 && 'A' <= c && c <= 'Z') {
			return false
		}
	}
	return len(s) < 16
}

// isParameter reports whether s has the form of realm="x", with which a server requests
// credentials.
func isParameter(s string) bool {
	name, value, ok := strings.Cut(s, "=")
	return ok && isWord(name) && value != "" && value[0] != '='
}
