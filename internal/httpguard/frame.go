package httpguard

import (
	"bytes"
	"net/http"
)

// A frame tracks the position in the answers on a connection. Its zero value expects no answer.
type frame struct {
	limit  int // maximum size of a head
	at     place
	noBody bool // the request was HEAD: the answer has no body

	head []byte // in place head: the head so far; in place trailer: the trailer so far
	line int    // in place head: start of the current line in head

	left  uint64 // in places body and chunk: bytes left
	digit int    // in place size: digits of the chunk size so far
	width int    // in places size and extension: length of the line so far
}

// place is the position of the next byte in an answer.
type place uint8

const (
	idle      place = iota // outside an answer
	head                   // in the head, or in that of an informational answer before it
	body                   // in a body of known length
	open                   // in a body that ends with the connection
	size                   // in the size of a chunk
	space                  // in white space after the size
	extension              // in an extension of a chunk
	sizeLF                 // at the line feed after size and extension
	chunk                  // in a chunk
	chunkCR                // at the carriage return after a chunk
	chunkLF                // at the line feed after that
	trailer                // in the trailer
)

const (
	// maxLine bounds the line before a chunk, and the trailer. net/http has the same bounds.
	maxLine = 4 << 10
	// keepHead is the largest head buffer that is kept between answers.
	keepHead = 4 << 10
)

// begin starts to expect an answer.
func (f *frame) begin(noBody bool) {
	f.at, f.noBody, f.head, f.line = head, noBody, f.head[:0], 0
}

// end marks the end of the answer.
func (f *frame) end() {
	f.at = idle
	if cap(f.head) > keepHead {
		f.head = nil
	}
}

// take advances by p and returns the number of its bytes that belong to the answer: len(p) if the
// error is nil.
func (f *frame) take(p []byte) (n int, err error) {
	for n < len(p) {
		took := 1
		switch f.at {
		case idle:
			return n, ErrUnsolicited
		case open:
			return len(p), nil
		case head:
			took, err = f.takeHead(p[n:])
		case body, chunk:
			took = int(min(f.left, uint64(len(p)-n)))
			if f.left -= uint64(took); f.left == 0 {
				f.bodyDone()
			}
		default:
			err = f.step(p[n])
		}
		if err != nil {
			return n, err
		}
		n += took
	}
	return n, nil
}

func (f *frame) bodyDone() {
	if f.at == chunk {
		f.at = chunkCR
		return
	}
	f.end()
}

// takeHead consumes up to the end of a line. If that ends the head, it determines what follows.
func (f *frame) takeHead(p []byte) (int, error) {
	line, _, whole := bytes.Cut(p, []byte{'\n'})
	n := len(line)
	if whole {
		n++
	}
	if len(f.head)+n > f.limit {
		return 0, ErrLongHead
	}
	f.head = append(f.head, p[:n]...)
	if !whole {
		return n, nil
	}
	last := f.head[f.line:]
	f.line = len(f.head)
	if len(last) == 1 || len(last) == 2 && last[0] == '\r' {
		if err := f.headDone(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// headDone determines what follows the head. After a head that net/http refuses, no bytes are
// expected: net/http reports an error and reads no further.
func (f *frame) headDone() error {
	h, ok := readHead(f.head, f.noBody)
	switch {
	case !ok:
		f.end()
	case h.status == http.StatusSwitchingProtocols:
		return ErrUpgraded
	case h.status >= 100 && h.status < 200:
		f.begin(f.noBody)
	case h.empty:
		f.end()
	case h.chunked:
		f.beginSize()
	case h.length > 0:
		f.at, f.left = body, uint64(h.length)
	default:
		f.at = open
	}
	return nil
}

func (f *frame) beginSize() {
	f.at, f.left, f.digit, f.width = size, 0, 0, 0
}

// step advances by a byte between chunks.
func (f *frame) step(b byte) error {
	switch f.at {
	case size, space, extension:
		return f.stepLine(b)
	case sizeLF:
		switch {
		case b != '\n':
			return ErrMalformed
		case f.left > 0:
			f.at = chunk
		default:
			f.at, f.head = trailer, f.head[:0]
		}
	case chunkCR:
		if b != '\r' {
			return ErrMalformed
		}
		f.at = chunkLF
	case chunkLF:
		if b != '\n' {
			return ErrMalformed
		}
		f.beginSize()
	case trailer:
		return f.stepTrailer(b)
	case idle, head, body, open, chunk:
	}
	return nil
}

// stepLine consumes a byte of "SIZE[ ...][;EXTENSION]CR".
func (f *frame) stepLine(b byte) error {
	f.width++
	value := hex(b)
	switch {
	case f.width > maxLine:
		return ErrMalformed
	case b == '\r':
		if f.digit == 0 {
			return ErrMalformed
		}
		f.at = sizeLF
	case b == '\n':
		return ErrMalformed
	case f.at == extension:
	case f.at == size && value >= 0:
		if f.digit == 16 {
			return ErrMalformed
		}
		f.left, f.digit = f.left<<4|uint64(value), f.digit+1
	case f.at == size && b == ';':
		f.at = extension
	case b == ' ' || b == '\t':
		f.at = space
	default:
		return ErrMalformed
	}
	return nil
}

// stepTrailer consumes a byte of the trailer: lines that end with CR LF, up to an empty one.
// net/http also accepts a bare LF, and would then end the trailer earlier than other parsers, so a
// bare LF is malformed.
func (f *frame) stepTrailer(b byte) error {
	if len(f.head) == maxLine {
		return ErrMalformed
	}
	before := byte(0)
	if len(f.head) > 0 {
		before = f.head[len(f.head)-1]
	}
	if (b == '\n') != (before == '\r') {
		return ErrMalformed
	}
	f.head = append(f.head, b)
	if len(f.head) == 2 && b == '\n' || bytes.HasSuffix(f.head, []byte("\r\n\r\n")) {
		f.end()
	}
	return nil
}

// hex returns the value of a hexadecimal digit, or -1.
func hex(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b >= 'a' && b <= 'f':
		return int(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}
