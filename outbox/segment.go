package outbox

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A segment is a file of records. Its name is the number of its first record, in 16 hexadecimal digits.
type segment struct {
	path  string
	first uint64   // number of the first record
	next  uint64   // number behind the last
	size  int64    // bytes that are good
	file  *os.File // nil once nothing more is written to it
	lost  error    // what fsync said: nobody knows which records the disk has
}

const (
	suffix = ".messages"
	magic  = "HUBLINE1" // what each segment begins with
)

func segmentPath(folder string, first uint64) string {
	name := strconv.FormatUint(first, 16)
	return filepath.Join(folder, strings.Repeat("0", 16-len(name))+name+suffix)
}

// numberOf reads a segment's name.
func numberOf(name string) (first uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	first, err := strconv.ParseUint(digits, 16, 64)
	return first, err == nil
}

// createSegment makes an empty one, in which the next record is first.
func createSegment(folder string, first uint64) (*segment, error) {
	s := &segment{path: segmentPath(folder, first), first: first, next: first, size: int64(len(magic))}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(magic); err != nil {
		_ = f.Close()
		_ = os.Remove(s.path)
		return nil, err
	}
	s.file = f
	return s, nil
}

// loadSegment looks at each record of a segment and takes it up to the first that is not whole, the one that was being written when the power went.
func loadSegment(path string, first uint64) (s *segment, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	s = &segment{path: path, first: first, next: first}
	r, err := newRecords(f, first, info.Size())
	for err == nil || err == errDamaged {
		_, err = r.read()
	}
	s.next, s.size = r.number, r.offset
	if err != errEnd && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	return s, nil
}

// append writes one record. After an error cut has to be called.
func (s *segment) append(record []byte) error {
	if _, err := s.file.WriteAt(record, s.size); err != nil {
		return err
	}
	s.size += int64(len(record))
	s.next++
	return nil
}

// cut takes away what a failed append left, so that a full disk has room for others again.
func (s *segment) cut() error { return s.file.Truncate(s.size) }

// records reads a segment's records one after the other, up to limit bytes of the file, which may grow.
type records struct {
	in     *bufio.Reader // reads nothing behind limit, for there somebody may be writing
	file   io.ReaderAt
	got    int64 // so many bytes of the file were read
	limit  int64
	number uint64 // of the record to be read
	offset int64  // where it begins
	buf    []byte
}

// newRecords reads no record where the file does not begin as a segment does. Its error is the file's.
func newRecords(f io.ReaderAt, first uint64, limit int64) (*records, error) {
	r := &records{file: f, number: first, limit: limit}
	r.in = bufio.NewReaderSize(r, 64<<10)
	var head [len(magic)]byte
	switch _, err := io.ReadFull(r.in, head[:]); {
	case err != nil && err != io.EOF && err != io.ErrUnexpectedEOF:
		return r, err
	case string(head[:]) != magic:
		r.limit = 0
	default:
		r.offset = int64(len(magic))
	}
	return r, nil
}

// Read is for in.
func (r *records) Read(p []byte) (int, error) {
	p = p[:max(0, min(int64(len(p)), r.limit-r.got))]
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := r.file.ReadAt(p, r.got)
	r.got += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}

var (
	errDamaged = errors.New("outbox: the record is damaged")
	errEnd     = errors.New("outbox: no whole record stands here")
)

// read returns the next message's bytes, which are valid until the next call. errDamaged: they are not what was written, and the record is passed over; errEnd: nothing readable is left up to limit; any other error
// is the file's.
func (r *records) read() ([]byte, error) {
	var head [recordHead]byte
	if r.limit-r.offset < recordHead {
		return nil, errEnd
	}
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size == 0 || size > maxRecord || size > r.limit-r.offset-recordHead {
		return nil, errEnd
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	message := r.buf[:size]
	if _, err := io.ReadFull(r.in, message); err != nil {
		return nil, err
	}
	good := sum(r.number, message) == binary.BigEndian.Uint32(head[4:])
	r.number++
	r.offset += recordHead + size
	if !good {
		return nil, errDamaged
	}
	return message, nil
}
