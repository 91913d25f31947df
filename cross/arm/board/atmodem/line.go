package atmodem

import "github.com/hubline-iot/hubline/cross/arm/board"

// lineSize is the longest line that can have a meaning. Longer ones are dropped.
const lineSize = 80

// maxGarbage bounds the bytes that one call of next consumes, so that its caller can look at the
// time.
const maxGarbage = 256

// line takes the modem's lines and data from the port.
type line struct {
	port board.Port
	raw  [64]byte
	rest []byte // of raw: read and not consumed
	text [lineSize]byte
	n    int  // bytes in text
	long bool // the line did not fit
}

// fill reads from the port, and reports whether there is something.
func (l *line) fill() bool {
	if len(l.rest) == 0 {
		n := l.port.Read(l.raw[:])
		l.rest = l.raw[:max(0, min(n, len(l.raw)))]
	}
	return len(l.rest) > 0
}

// next returns the next line without its end and without spaces before it, nil if none is complete.
// It is valid until the next call. prompt makes ">" a line by itself; nothing ends it.
func (l *line) next(prompt bool) []byte {
	for range maxGarbage {
		if !l.fill() {
			return nil
		}
		b := l.rest[0]
		l.rest = l.rest[1:]
		switch {
		case b == '\n':
			text, long := l.text[:l.n], l.long
			l.n, l.long = 0, false
			if len(text) > 0 && !long {
				return text
			}
		case b == '\r', b == 0, l.n == 0 && b == ' ':
		case l.n == len(l.text):
			l.long = true
		default:
			l.text[l.n] = b
			l.n++
			if prompt && l.n == 1 && b == '>' {
				l.n = 0
				return l.text[:1]
			}
		}
	}
	return nil
}

// data moves received bytes to p, and returns how many.
func (l *line) data(p []byte) int {
	if len(p) == 0 || !l.fill() {
		return 0
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n
}
