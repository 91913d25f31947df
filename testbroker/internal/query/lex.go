package query

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

type kind uint8

const (
	kindEnd    kind = iota
	kindWord        // a name or keyword
	kindQuoted      // a name in double brackets
	kindString
	kindNumber
	kindSign // an operator or punctuation
)

// A token is a part of the text.
type token struct {
	kind   kind
	text   string // of a string, its value; of a quoted name, the name
	number float64
	at     int // offset in bytes
}

// is reports whether the token is a keyword or sign.
func (t token) is(text string) bool {
	return t.kind == kindSign && t.text == text || t.kind == kindWord && strings.EqualFold(t.text, text)
}

// describe returns the token for errors.
func (t token) describe() string {
	switch t.kind {
	case kindEnd:
		return "the end"
	case kindString:
		return strconv.Quote(shortened(t.text))
	case kindQuoted:
		return "[[" + shortened(t.text) + "]]"
	case kindWord, kindNumber, kindSign:
	}
	return shortened(t.text)
}

// shortened bounds a piece of a query in an error.
func shortened(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// signs are the operators and punctuation, longer ones first.
var signs = []string{"!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", "[", "]", ",", ".", "*", "+", "-", "/", "%", ";"}

// A lexer splits a text into tokens.
type lexer struct {
	text string
	at   int
}

func (l *lexer) next() (token, error) {
	l.at = len(l.text) - len(strings.TrimLeftFunc(l.text[l.at:], unicode.IsSpace))
	rest, at := l.text[l.at:], l.at
	if rest == "" {
		return token{at: at}, nil
	}
	first, _ := utf8.DecodeRuneInString(rest)
	switch {
	case strings.HasPrefix(rest, "[["):
		end := strings.Index(rest, "]]")
		if end <= len("[[") {
			return token{}, l.errorf(at, "a name in double brackets is empty or does not end; write [[name]]")
		}
		l.at += end + len("]]")
		return token{kind: kindQuoted, text: rest[len("[["):end], at: at}, nil
	case first == '\'' || first == '"':
		return l.quoted(byte(first))
	case '0' <= first && first <= '9':
		return l.number()
	case startsName(first):
		n := strings.IndexFunc(rest, func(r rune) bool { return !startsName(r) && !unicode.IsDigit(r) })
		if n < 0 {
			n = len(rest)
		}
		l.at += n
		return token{kind: kindWord, text: rest[:n], at: at}, nil
	}
	for _, s := range signs {
		if strings.HasPrefix(rest, s) {
			l.at += len(s)
			return token{kind: kindSign, text: s, at: at}, nil
		}
	}
	return token{}, l.errorf(at, "character %q is not part of the language; names with it stand in [[ ]]", first)
}

func startsName(r rune) bool { return r == '_' || r == '$' || unicode.IsLetter(r) }

// number reads a number. A letter that follows it directly is refused.
func (l *lexer) number() (token, error) {
	rest, at := l.text[l.at:], l.at
	n, hexadecimal := 0, len(rest) > 1 && (rest[1] == 'x' || rest[1] == 'X') && rest[0] == '0'
	for n < len(rest) && (rest[n] == '.' || isAlphanumeric(rest[n]) ||
		!hexadecimal && (rest[n] == '+' || rest[n] == '-') && (rest[n-1] == 'e' || rest[n-1] == 'E')) {
		n++
	}
	text := rest[:n]
	var v float64
	var err error
	if hexadecimal {
		var whole uint64
		whole, err = strconv.ParseUint(text[2:], 16, 64)
		v = float64(whole)
	} else {
		v, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return token{}, l.errorf(at, "%q is not a number, or out of range", shortened(text))
	}
	l.at += n
	return token{kind: kindNumber, text: text, number: v, at: at}, nil
}

func isAlphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func (l *lexer) quoted(quote byte) (token, error) {
	var value strings.Builder
	at := l.at
	for i := at + 1; i < len(l.text); {
		switch c := l.text[i]; {
		case c == quote:
			l.at = i + 1
			return token{kind: kindString, text: value.String(), at: at}, nil
		case c != '\\':
			value.WriteByte(c)
			i++
		case i+1 < len(l.text) && strings.IndexByte(`'"\`, l.text[i+1]) >= 0:
			value.WriteByte(l.text[i+1])
			i += 2
		default:
			r, n := escaped(l.text[i:])
			if n == 0 {
				return token{}, l.errorf(i, `unknown escape; the escapes are \' \" \\ \uXXXX`)
			}
			value.WriteRune(r)
			i += n
		}
	}
	return token{}, l.errorf(at, "the string does not end; close it with %c", quote)
}

// escaped reads \uXXXX, or two of them that are one character. n is the length, 0 = there is none.
func escaped(text string) (r rune, n int) {
	const length = len(`\u0000`)
	one := func(text string) (rune, bool) {
		if len(text) < length || text[1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(text[2:length], 16, 16)
		return rune(v), err == nil
	}
	r, ok := one(text)
	if !ok {
		return 0, 0
	}
	if rest := text[length:]; utf16.IsSurrogate(r) && strings.HasPrefix(rest, `\`) {
		if low, ok := one(rest); ok {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				return both, 2 * length
			}
		}
	}
	return r, length // WriteRune replaces half a pair
}
