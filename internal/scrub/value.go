package scrub

import "strings"

// value returns the value that begins at i, without its quotes.
func (x *scanner) value(i int, escaped bool) (from, to int) {
	if quote := x.quoteAt(i); quote != "" {
		from = i + len(quote)
		for at := from; at < len(x.s); at++ {
			if x.s[at] == '\n' || strings.HasPrefix(x.lower[at:], quote) {
				return from, at
			}
			if x.s[at] == '\\' && len(quote) == 1 && at+1 < len(x.s) && x.s[at+1] != '\n' {
				at++ // skip the escaped character
			}
		}
		return from, len(x.s)
	}
	if x.s[i] == '[' {
		if n := strings.IndexAny(x.s[i:], "]\n"); n > 0 {
			return i + 1, i + n
		}
		return i + 1, len(x.s)
	}
	if x.s[i] == '{' { // a password may contain "}": the line's last one ends the value
		line, _, _ := strings.Cut(x.s[i:], "\n")
		if n := strings.LastIndexByte(line, '}'); n > 0 {
			return i + 1, i + n
		}
		return i + 1, i + len(line)
	}
	return i, x.unquoted(i, escaped)
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
			rest := x.lower[i:]
			if strings.HasPrefix(rest, `\u0026`) || strings.HasPrefix(rest, `\u0022`) || strings.HasPrefix(rest, `\"`) ||
				strings.HasPrefix(rest, `\\"`) ||
				strings.HasPrefix(rest, `\n`) && x.ends(i+2) || strings.HasPrefix(rest, `\r\n`) {
				return i
			}
		case c == '%' && escaped:
			for _, end := range [...]string{"%26", "%2526", "%22", "%27", "%3b", "%20", "%0a", "%0d", "%3c", "%7d"} {
				if strings.HasPrefix(x.lower[i:], end) {
					return i
				}
			}
		}
	}
	return len(x.s)
}

// ends reports whether a value may end before i.
func (x *scanner) ends(i int) bool {
	return i >= len(x.s) || strings.IndexByte("&;, \t\r\n\"'`)]}<>:.\\|/%", x.s[i]) >= 0
}

// header returns the value of a header that holds credentials: the rest of the line.
func (x *scanner) header(i int, prose bool) (from, to int) {
	if x.quoteAt(i) != "" || x.s[i] == '[' {
		return x.value(i, false)
	}
	word := x.unquoted(i, false)
	if prose && isWord(x.s[i:word]) && !x.isScheme(i, word) {
		return 0, 0
	}
	if x.isScheme(i, word) && word < len(x.s) {
		i = x.skipSpace(word) // the scheme is no secret
	}
	to = len(x.s)
	for _, end := range [...]string{"\n", "\r", `\n`, `\r`, "%0d", "%0a", "\"", "' ", "'\""} {
		if n := strings.Index(x.lower[i:to], end); n >= 0 {
			to = i + n
		}
	}
	return i, to
}

func (x *scanner) isScheme(from, to int) bool {
	name := x.lower[from:to]
	for _, s := range schemes {
		if s == name {
			return true
		}
	}
	return name == "sharedaccesssignature" || name == "digest" || name == "token"
}
