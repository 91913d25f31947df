// Package jsonscan checks JSON texts, finds members of objects, without building values, and writes
// strings. It allocates nothing and is for boards, for which encoding/json is too large.
//
// Source: RFC 8259. Valid and IsObject check the text's encoding, too, which encoding/json does
// not.
package jsonscan

import "unicode/utf8"

// MaxDepth is the maximum nesting of arrays and objects; deeper texts are invalid. A twin has ten
// levels.
const MaxDepth = 64

// Valid reports whether text is one JSON value in UTF-8, with white space around it or not.
func Valid(text []byte) bool {
	s := scanner{text: text}
	return s.value(0) && s.atEnd() && utf8.Valid(text)
}

// IsObject reports whether text is one JSON object in UTF-8.
func IsObject(text []byte) bool {
	s := scanner{text: text}
	s.space()
	return s.peek() == '{' && Valid(text)
}

// Member returns the raw value of object's member with this name, without surrounding white space.
// Of members with the same name, the last one counts. ok is false if there is none, or if object is
// not a JSON object. A name written with escapes matches, too.
func Member(object []byte, name string) (value []byte, ok bool) {
	s := scanner{text: object}
	valid := s.object(0, func(key, v []byte) {
		if sameName(key, name) {
			value, ok = v, true
		}
	})
	if !valid || !s.atEnd() {
		return nil, false
	}
	return value, ok
}

// Value is Member for a member that may be null: nil if it is missing or null.
func Value(object []byte, name string) []byte {
	value, _ := Member(object, name)
	if string(value) == "null" {
		return nil
	}
	return value
}

// TextOf returns the text of a member; empty if it is missing or no string.
func TextOf(object []byte, name string) string {
	value, _ := Member(object, name)
	return Text(value)
}

// Members passes each member of object to show, in order; value is raw, without surrounding white
// space. The result is false if object is not a JSON object; show may then have seen a part of it.
func Members(object []byte, show func(name string, value []byte)) bool {
	s := scanner{text: object}
	return s.object(0, func(key, value []byte) { show(unescape(key), value) }) && s.atEnd()
}

// Elements passes each element of array to show, in order, without surrounding white space. The
// result is false if array is not a JSON array; show may then have seen a part of it.
func Elements(array []byte, show func(value []byte)) bool {
	s := scanner{text: array}
	return s.array(0, show) && s.atEnd()
}

// Int returns the value of a JSON number without fraction and exponent that fits into an int64.
func Int[T string | []byte](number T) (n int64, ok bool) {
	digits := number
	negative := len(digits) > 0 && digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	var u uint64
	for i := 0; i < len(digits); i++ {
		c := digits[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0') // 19 digits fit
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u < 1<<63:
		return int64(u), true
	}
	return 0, false
}

// scanner walks over a text. Each method consumes the element it is named after, with white space
// before it, and reports whether it was there.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	s.space()
	if s.at == len(s.text) || s.text[s.at] != c {
		return false
	}
	s.at++
	return true
}

func (s *scanner) space() {
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) atEnd() bool {
	s.space()
	return s.at == len(s.text)
}

func (s *scanner) value(depth int) bool {
	s.space()
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth, nil)
	case c == '"':
		return s.str()
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	return s.number()
}

// object consumes an object and passes each member to show; the key is raw, without its quotes.
func (s *scanner) object(depth int, show func(key, value []byte)) bool {
	if depth == MaxDepth || !s.take('{') {
		return false
	}
	if s.take('}') {
		return true
	}
	for {
		s.space()
		from := s.at
		if !s.str() {
			return false
		}
		key := s.text[from+1 : s.at-1]
		if !s.take(':') {
			return false
		}
		s.space()
		from = s.at
		if !s.value(depth + 1) {
			return false
		}
		if show != nil {
			show(key, s.text[from:s.at])
		}
		if s.take('}') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

// array consumes an array and passes each element to show.
func (s *scanner) array(depth int, show func(value []byte)) bool {
	if depth == MaxDepth || !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		s.space()
		from := s.at
		if !s.value(depth + 1) {
			return false
		}
		if show != nil {
			show(s.text[from:s.at])
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}

func (s *scanner) word(w string) bool {
	if len(s.text)-s.at < len(w) || string(s.text[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) number() bool {
	if s.peek() == '-' {
		s.at++
	}
	if s.peek() == '0' {
		s.at++
	} else if !s.digits() {
		return false
	}
	if s.peek() == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.at++
		if c := s.peek(); c == '+' || c == '-' {
			s.at++
		}
		return s.digits()
	}
	return true
}

// digits consumes one digit or more.
func (s *scanner) digits() bool {
	from := s.at
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.at++
	}
	return s.at > from
}

func (s *scanner) str() bool {
	if s.peek() != '"' {
		return false
	}
	s.at++
	for s.at < len(s.text) {
		c := s.text[s.at]
		s.at++
		switch {
		case c == '"':
			return true
		case c < ' ':
			return false
		case c == '\\':
			if !s.escape() {
				return false
			}
		}
	}
	return false
}

// escape consumes what follows a backslash.
func (s *scanner) escape() bool {
	c := s.peek()
	s.at++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		_, ok := hex4(s.text[min(s.at, len(s.text)):])
		s.at += 4
		return ok
	}
	return false
}

func hex4(text []byte) (r rune, ok bool) {
	if len(text) < 4 {
		return 0, false
	}
	for _, c := range text[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// Text returns the text of a raw string of a valid text; empty for other values. A lone surrogate
// becomes U+FFFD.
func Text(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	return unescape(raw[1 : len(raw)-1])
}

// AppendString appends text as a JSON string, with its quotes. What is not UTF-8 becomes U+FFFD.
func AppendString(dst []byte, text string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return append(dst, '"')
}

// unescape returns the text of a raw string without its quotes.
func unescape(raw []byte) string {
	text := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		r, size := char(raw)
		raw = raw[size:]
		if r < utf8.RuneSelf || size == 1 {
			text = append(text, byte(r))
		} else {
			text = utf8.AppendRune(text, r)
		}
	}
	return string(text)
}

// sameName compares a raw key of a valid text, without quotes, with a name.
func sameName(key []byte, name string) bool {
	for len(key) > 0 {
		r, size := char(key)
		key = key[size:]
		one := 1
		if r < utf8.RuneSelf || size == 1 {
			if name == "" || name[0] != byte(r) {
				return false
			}
		} else if one = utf8.RuneLen(r); len(name) < one || name[:one] != string(r) {
			return false
		}
		name = name[one:]
	}
	return name == ""
}

// char returns the first byte of a raw string, or the character that an escape sequence there
// stands for, and its size.
func char(raw []byte) (r rune, size int) {
	if raw[0] != '\\' {
		return rune(raw[0]), 1
	}
	switch raw[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, _ = hex4(raw[2:])
		if r>>10 == 0xd800>>10 && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if low, _ := hex4(raw[8:]); low>>10 == 0xdc00>>10 {
				return 0x10000 + (r&0x3ff)<<10 + low&0x3ff, 12
			}
		}
		if r>>11 == 0xd800>>11 {
			r = utf8.RuneError // a lone surrogate
		}
		return r, 6
	}
	return rune(raw[1]), 2 // a quotation mark, a backslash or a slash
}
