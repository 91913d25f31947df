package httpguard

import (
	"bytes"
	"net/http"
)

// A frame follows the bytes of a connection through answers. Its zero value is at rest.
type frame struct {
	limit int // of a head
	at    place
	bare  bool // the request was HEAD: the answer has no body

	head []byte // place head: what came of it; place trailer: of the trailer
	line int    // place head: where the current line begins in head

	left  uint64 // place body: bytes to come; place chunk: bytes of the chunk to come
	digit int    // place size: digits of the chunk's size so far
	width int    // place size and extension: length of the line so far
}

// place is where in an answer the next byte stands.
type place uint8

const (
	rest      place = iota // in none
	head                   // in the head, or in that of an informational answer before it
	body                   // in a body of known length
	open                   // in a body that the end of the connection ends, or in another protocol
	size                   // in the size of a chunk
	space                  // in white space behind the size
	extension              // in an extension of a chunk
	sizeLF                 // at the line feed behind size and extension
	chunk                  // in a chunk
	chunkCR                // at the carriage return behind a chunk
	chunkLF                // at the line feed after that
	trailer                // in the trailer
)

const (
	// maxLine bounds the line before a chunk, and the trailer. net/http has the same bounds.
	maxLine = 4 << 10
	// keepHead is the largest memory for heads that is kept between answers.
	keepHead = 4 << 10
)

// begin says that an answer is due.
func (f *frame) begin(bare bool) {
	f.at, f.bare, f.head, f.line = head, bare, f.head[:0], 0
}

// end says that the answer is over.
func (f *frame) end() {
	f.at = rest
	if cap(f.head) > keepHead {
		f.head = nil
	}
}

// take goes on by p and returns how much of it belongs to the answer. That is all of p if the error
// is nil.
func (f *frame) take(p []byte) (n int, err error) {
	for n < len(p) {
		took := 1
		switch f.at {
		case rest:
			return n, ErrUnasked
		case open:
			return len(p), nil
		case head:
			took, err = f.takeHead(p[n:])
		case body, chunk:
			took = int(min(f.left, uint64(len(p)-n)))
			if f.left -= uint64(took); f.left == 0 {
				f.bodyOver()
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

func (f *frame) bodyOver() {
	if f.at == chunk {
		f.at = chunkCR
		return
	}
	f.end()
}

// takeHead takes the rest of a line or, if that ends the head, finds out what follows.
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
		f.headOver()
	}
	return n, nil
}

// headOver finds out what follows the head. Nothing more is due after a head that net/http refuses:
// net/http reports it and reads no further.
func (f *frame) headOver() {
	h, ok := readHead(f.head, f.bare)
	switch {
	case !ok:
		f.end()
	case h.status == http.StatusSwitchingProtocols:
		f.end()
		f.at = open
	case h.status >= 100 && h.status < 200:
		f.begin(f.bare)
	case h.empty:
		f.end()
	case h.chunked:
		f.beginSize()
	case h.length > 0:
		f.at, f.left = body, uint64(h.length)
	default:
		f.at = open
	}
}

func (f *frame) beginSize() {
	f.at, f.left, f.digit, f.width = size, 0, 0, 0
}

// step goes on by a byte of what stands between chunks.
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
	case rest, head, body, open, chunk:
	}
	return nil
}

// stepLine takes a byte of "SIZE[ ...][;EXTENSION]CR".
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

// stepTrailer takes a byte of lines that CR LF ends, up to an empty one. net/http takes a bare LF
// there too, and then ends the trailer where other readers see none, so that is malformed.
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
