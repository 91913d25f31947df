package scrub

import (
	"slices"
	"strings"
)

// maxUserinfo bounds the search for the end of a user and password.
const maxUserinfo = 1 << 10

// userinfo returns the "user:password" of a URL, or the password in "user:password@host", which may
// be escaped within another URL. A password may contain the characters that end a URL's host, so
// the last "@" counts.
func (x *scanner) userinfo(i int) (from, to int) {
	colon, slash, at, ends, nextAt := ":", "/", "@", "<> \t\r\n\"", &x.nextAt[0]
	if x.s[i] == '%' {
		colon, slash, at, ends, nextAt = "%3a", "%2f", "%40", "/?#&\\<> \t\r\n\"", &x.nextAt[1]
	}
	if !strings.HasPrefix(x.lower[i:], colon) {
		return 0, 0
	}
	from = i + len(colon)
	inURL := strings.HasPrefix(x.lower[from:], slash+slash)
	if inURL {
		from += 2 * len(slash)
	} else {
		ends += "'`|" // browsers and curl take them in passwords
	}
	if *nextAt < from { // each part of the text is searched once
		*nextAt = len(x.s)
		if n := strings.Index(x.lower[from:], at); n >= 0 {
			*nextAt = from + n
		}
	}
	if *nextAt >= from+maxUserinfo {
		return 0, 0
	}
	info := x.lower[from:min(len(x.s), from+maxUserinfo)]
	if n := strings.IndexAny(info, ends); n >= 0 {
		info = info[:n]
	}
	n := strings.LastIndex(info, at)
	if n <= 0 {
		return 0, 0
	}
	host := info
	for _, end := range [...]string{slash, "?", "#"} {
		host, _, _ = strings.Cut(host, end)
	}
	if strings.Contains(host, at) {
		return from, from + n
	}
	port, hasPort := host, true
	if inURL {
		_, port, hasPort = strings.Cut(host, colon)
	}
	if !hasPort || isPort(port) {
		return 0, 0 // the "@" is in the path
	}
	return from, from + n
}

// isPort reports whether s may be the number of a port.
func isPort(s string) bool { return s != "" && len(s) <= 5 && strings.Trim(s, "0123456789") == "" }

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
	if !slices.Contains(schemes[:], x.lower[begin:end]) {
		return 0, 0
	}
	from = x.skipSpace(end)
	head := *x // else a text of many schemes takes time
	head.s = x.s[:min(len(x.s), from+20)]
	if isParameter(head.s[from:head.unquoted(from, false)]) {
		return 0, 0
	}
	if to = x.unquoted(from, false); isWord(x.s[from:to]) {
		return 0, 0
	}
	return from, to
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
