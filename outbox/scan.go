package outbox

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
)

// scanner reads the records of a segment in order and skips damaged heads. Gaps in the numbers of
// the returned records show the missing ones. It returns a record with a damaged body without a
// message; Run skips that one (run.go).
type scanner struct {
	file  io.ReaderAt
	salt  uint32
	next  uint64 // the minimum number of the next record
	at    int64  // offset of the next record
	limit int64  // end of reading; the writer may be writing behind it

	window     []byte // bytes of the file from start on
	start      int64
	unreadable bool // some sectors could not be read
}

// errEnd means that no record follows before limit.
var errEnd = errors.New("outbox: no record follows")

const (
	readSize = 64 << 10
	// pageSize is the unit in which unreadable sectors are skipped.
	pageSize = 4096
)

// read returns the next record with a valid head. message is nil if it does not match its checksum,
// and otherwise valid until the next call. The error is errEnd or the file's.
func (s *scanner) read() (number uint64, message []byte, err error) {
	for at := s.at; ; {
		if s.limit-at < recordHead {
			return 0, nil, errEnd
		}
		b, err := s.bytes(at, recordHead)
		if err != nil {
			return 0, nil, err
		}
		h, ok := readHead(b, s.salt, at)
		if ok && s.fits(h, at) {
			message, err := s.bytes(at+recordHead, h.length)
			if err != nil {
				return 0, nil, err
			}
			s.at, s.next = at+recordHead+int64(h.length), h.number+1
			if crc32.Checksum(message, castagnoli) != h.sum {
				message = nil
			}
			return h.number, message, nil
		}
		if at, err = s.find(at + 1); err != nil {
			return 0, nil, err
		}
	}
}

// fits reports whether a record with head h can stand at this offset: it ends before limit, and the
// skipped bytes have room for the records that its number implies are missing.
func (s *scanner) fits(h head, at int64) bool {
	return int64(h.length) <= s.limit-at-recordHead && h.number >= s.next &&
		h.number-s.next <= uint64(at-s.at)/(recordHead+leastMessage)
}

// skip moves on behind limit, to the record with the number next.
func (s *scanner) skip(next uint64) { s.at, s.next = s.limit, next }

// find returns the offset of the first marker from at on, or limit.
func (s *scanner) find(at int64) (int64, error) {
	for s.limit-at >= recordHead {
		n := int(min(s.limit-at, readSize))
		b, err := s.bytes(at, n)
		if err != nil {
			return 0, err
		}
		if i := bytes.Index(b, []byte(marker)); i >= 0 {
			return at + int64(i), nil
		}
		at += int64(n - len(marker) + 1)
	}
	return s.limit, nil
}

// bytes returns n bytes of the file, which must end before limit.
func (s *scanner) bytes(at int64, n int) ([]byte, error) {
	if at < s.start || at+int64(n) > s.start+int64(len(s.window)) {
		if err := s.fill(at, n); err != nil {
			return nil, err
		}
	}
	i := int(at - s.start)
	return s.window[i : i+n], nil
}

// fill moves the window to at and reads at least n bytes.
func (s *scanner) fill(at int64, n int) error {
	size := int(min(int64(max(n, readSize)), s.limit-at))
	var rest []byte
	if at >= s.start && at < s.start+int64(len(s.window)) {
		rest = s.window[at-s.start:]
	}
	window := s.window
	if cap(window) < size {
		window = make([]byte, size)
	}
	window = window[:size]
	kept := copy(window, rest)
	s.window, s.start = window[:0], at // in case of an error
	if err := s.readAt(window[kept:], at+int64(kept)); err != nil {
		return err
	}
	s.window = window
	return nil
}

// readAt fills p. Bytes that cannot be read become zeros, which fail the checksums.
func (s *scanner) readAt(p []byte, at int64) error {
	n, err := s.file.ReadAt(p, at)
	switch {
	case n == len(p):
		return nil
	case err == io.EOF: // the file was truncated
		clear(p[n:])
		return nil
	case !isUnreadable(err):
		return err
	}
	for n < len(p) {
		page := int(pageSize - (at+int64(n))%pageSize)
		part := p[n:min(len(p), n+page)]
		if got, err := s.file.ReadAt(part, at+int64(n)); got < len(part) {
			if err != io.EOF && !isUnreadable(err) {
				return err
			}
			clear(part)
			s.unreadable = true
		}
		n += len(part)
	}
	return nil
}
