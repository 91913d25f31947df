package fileupload

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// A plan says how large the blocks of a file are: they double after each step of them, so that a
// file whose size nobody knows can begin with small ones and still be large.
type plan struct {
	first, most int64 // sizes
	blocks      int   // of a file, a multiple of 5
}

// step is how many blocks have the same size.
func (p plan) step() int { return p.blocks / 5 }

// size is that of block n, counted from 0.
func (p plan) size(n int) int64 {
	s := p.first
	for ; n >= p.step() && s < p.most; n -= p.step() {
		s = min(2*s, p.most)
	}
	return s
}

// capacity is the size of the largest file.
func (p plan) capacity() int64 {
	var sum int64
	for n := 0; n < p.blocks; n += p.step() {
		sum += int64(p.step()) * p.size(n)
	}
	return sum
}

func (p plan) tooLarge(what string) *transport.Error {
	return &transport.Error{Kind: transport.TooLarge, Op: transport.OpSend, Proto: proto,
		Err: errors.New(what + " more than " + strconv.FormatInt(p.capacity(), 10) +
			" bytes, which is all that " + strconv.Itoa(p.blocks) + " blocks hold; raise Options.BlockSize or MaxBlockSize")}
}

// blockID is the name of block n. All of a blob's have the same length, as storage demands, and
// those of other uploads are others.
func blockID(upload uint64, n int) string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], upload)
	binary.BigEndian.PutUint32(b[8:], uint32(n))
	return base64.StdEncoding.EncodeToString(b[:])
}

// A source is what is uploaded, read once from beginning to end by one goroutine.
type source struct {
	r    io.Reader
	size int64 // negative = unknown
	read int64
	sum  hash.Hash
}

// fill reads as much as buf holds, or what is left. last says that nothing follows; for a reader of
// unknown size that may only be known when nothing came.
func (s *source) fill(buf []byte) (n int, last bool, err error) {
	if s.size >= 0 {
		buf = buf[:min(int64(len(buf)), s.size-s.read)]
	}
	n, err = io.ReadFull(s.r, buf)
	s.read += int64(n)
	s.sum.Write(buf[:n])
	switch {
	case err == nil:
		return n, s.read == s.size, nil
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return n, false, s.failed(err)
	case s.size >= 0:
		return n, false, s.failed(errors.New("it ended after " + strconv.FormatInt(s.read, 10) + " of " +
			strconv.FormatInt(s.size, 10) + " bytes"))
	}
	return n, true, nil
}

// failed is the error for a reader of the caller's that does not do its part.
func (s *source) failed(err error) *transport.Error {
	kind := transport.KindOf(err)
	if kind == transport.Unknown {
		kind = transport.Invalid
	}
	return &transport.Error{Kind: kind, Op: transport.OpSend, Proto: proto, Err: &stepError{"reader of the file", err}}
}
