package scrub

import "strings"

// value returns the value that begins at i, without its quotes. json: its name is in quotes.
func (x *scanner) value(i int, escaped, json bool) (from, to int) {
	if i >= len(x.s) {
		return i, i
	}
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
	if open := x.escapedBracket(i); escaped && open != "" {
		from = i + len(open)
		to = x.unquoted(from, false)
		if n := strings.LastIndex(x.lower[from:to], open[:len(open)-1]+"d"); n >= 0 {
			to = from + n
		}
		return from, to
	}
	switch x.s[i] {
	case '[':
		if n := strings.IndexAny(x.s[i:], "]\n"); n > 0 && x.s[i+n] == ']' {
			return i + 1, i + n
		}
		return i + 1, x.closing(i, json)
	case '{': // a password may contain "}": the line's last one ends the value
		to = x.closing(i, json)
		line, _, _ := strings.Cut(x.s[to:], "\n")
		return i + 1, to + max(0, strings.LastIndexByte(line, '}'))
	}
	return i, x.unquoted(i, escaped)
}

// startsJSON reports whether a text, a list or an object of JSON begins at i.
func (x *scanner) startsJSON(i int) bool {
	return i < len(x.s) && (x.s[i] == '[' || x.s[i] == '{' || x.quoteAt(i) != "" || x.escapedBracket(i) != "")
}

// escapedBracket returns the escaped "{" or "[" that begins at i, empty for none.
func (x *scanner) escapedBracket(i int) string {
	for _, open := range [...]string{"%7b", "%5b", "%257b", "%255b"} {
		if strings.HasPrefix(x.lower[i:], open) {
			return open
		}
	}
	return ""
}

// maxBlock is how far the end of a list or an object is searched if the name before has no quotes.
// After maxOpen searches without a result it counts as JSON: each search takes time.
const maxBlock, maxOpen = 1024, 16

// closing returns the position of the bracket that closes the one at i. Without one it returns the
// end of the text in JSON, else the end of the line.
func (x *scanner) closing(i int, json bool) int {
	json = json || x.open == maxOpen
	depth := 0
	plain := i // no quote begins before: the line has one that does not end
	for at := i; at < len(x.s) && (json || at < i+maxBlock); at++ {
		if quote := x.quoteAt(at); quote != "" && at >= plain {
			_, to := x.value(at, false, false)
			if json || to < len(x.s) && x.s[to] != '\n' {
				at = to + len(quote) - 1
				continue
			}
			plain = to
		}
		switch x.s[at] {
		case x.s[i]:
			depth++
		case x.s[i] + 2: // in ASCII
			if depth--; depth == 0 {
				return at
			}
		}
	}
	if json {
		return len(x.s)
	}
	x.open++
	line, _, _ := strings.Cut(x.s[i:], "\n")
	return i + len(line)
}

// unquoted returns the end of a value without quotes.
func (x *scanner) unquoted(i int, escaped bool) int {
	if strings.HasPrefix(x.s[i:], hidden) && x.ends(i+len(hidden)) {
		return i + len(hidden)
	}
	if !escaped && x.plain[0] <= i && i < x.plain[1] {
		return x.plain[1] // the value that i is in ends there, too
	}
	end := x.unquotedEnd(i, escaped)
	if !escaped {
		x.plain = [2]int{i, end}
	}
	return end
}

func (x *scanner) unquotedEnd(i int, escaped bool) int {
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
func (x *scanner) header(i int, prose, json bool) (from, to int) {
	ends := x.quoteAt(i) != "" || x.s[i] == '[' // the value has its own end
	if x.s[i] == '{' {
		line, _, _ := strings.Cut(x.s[i:min(i+maxBlock, len(x.s))], "\n")
		ends = strings.IndexByte(line, '}') < 0 || strings.HasPrefix(line, "{"+hidden)
	}
	if ends {
		return x.headerValue(i, json)
	}
	word := x.unquoted(i, false)
	if prose && isWord(x.s[i:word]) && !x.isScheme(i, word) {
		return 0, 0
	}
	if next := x.skipFolds(word); next > word && x.isScheme(i, word) {
		i = next // the scheme is no secret
		if x.quoteAt(i) != "" {
			return x.headerValue(i, json)
		}
	}
	return i, x.headerEnd(i)
}

// headerValue is like value, and goes on where the line of a fold ends the value.
func (x *scanner) headerValue(i int, json bool) (from, to int) {
	from, to = x.value(i, false, json)
	if to < len(x.s) && x.s[to] == '\n' {
		to = x.headerEnd(to)
	}
	return from, to
}

// headerEnd returns the end of the header whose value goes on at i: the end of a line that no fold
// continues, or a quote.
func (x *scanner) headerEnd(i int) int {
	for i < len(x.s) {
		if quote := x.quoteAt(i); quote != "" && x.assigned(i) { // of a parameter, unless a text ends with "="
			from, to := x.value(i, false, false)
			switch end := to + len(quote); {
			case to == len(x.s) || x.s[to] == '\n': // cut, unless the quote ends the text
				if from < to && (x.s[from] == '/' || !x.ends(from)) {
					i = to
					continue
				}
			case x.ends(end):
				i = end
				continue
			}
		}
		for _, end := range [...]string{"\n", "\r", `\n`, `\r`, "%0d", "%0a", "\"", "' ", "'\""} {
			if strings.HasPrefix(x.lower[i:], end) {
				next := x.skipFolds(i)
				if next == i {
					return i
				}
				i = next - 1
				break
			}
		}
		i++
	}
	return i
}

// assigned reports whether a "=" stands before i.
func (x *scanner) assigned(i int) bool {
	for i > 0 && (x.s[i-1] == ' ' || x.s[i-1] == '\t') {
		i--
	}
	return i > 0 && x.s[i-1] == '='
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
