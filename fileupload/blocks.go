package fileupload

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"
	"io"
	"strconv"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// A plan defines the block sizes of a file. The size doubles after each step of blocks, so a file
// of unknown size can begin with small blocks and still be large.
type plan struct {
	first, max int64 // in bytes
	blocks     int   // per file, a multiple of 5
}

// step returns the number of consecutive blocks of the same size.
func (p plan) step() int { return p.blocks / 5 }

// size returns the size of block n, counted from 0.
func (p plan) size(n int) int64 {
	s := p.first
	for ; n >= p.step() && s < p.max; n -= p.step() {
		s = min(2*s, p.max)
	}
	return s
}

// capacity returns the size of the largest file.
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

// blockID returns the ID of block n. Storage demands IDs of equal length within a blob; upload
// makes them distinct from those of other uploads.
func blockID(upload uint64, n int) string {
	var b [12]byte
	binary.BigEndian.PutUint64(b[:], upload)
	binary.BigEndian.PutUint32(b[8:], uint32(n))
	return base64.StdEncoding.EncodeToString(b[:])
}

// A source is the data to upload. One goroutine reads it once, from beginning to end.
type source struct {
	r    io.Reader
	size int64 // negative = unknown
	read int64
	sum  hash.Hash
}

// maxEmptyReads is how many reads in a row may bring nothing.
const maxEmptyReads = 100

// fill reads until buf is full, the data ends, or ctx does. last reports that no data follows; for
// a reader of unknown size that may become known only with n = 0. io.ReadFull would not do: an
// io.ErrUnexpectedEOF of the reader is the end to it.
func (s *source) fill(ctx context.Context, buf []byte) (n int, last bool, err error) {
	if s.size >= 0 {
		buf = buf[:min(int64(len(buf)), s.size-s.read)]
	}
	for empty := 0; n < len(buf) && err == nil && ctx.Err() == nil; empty++ {
		var got int
		if got, err = s.r.Read(buf[n:]); got > 0 {
			n, empty = n+got, 0
		}
		if err == nil && empty == maxEmptyReads {
			err = io.ErrNoProgress
		}
	}
	s.read += int64(n)
	s.sum.Write(buf[:n])
	switch {
	case n == len(buf):
		return n, s.read == s.size, nil
	case err == nil:
		return n, false, cancelled(ctx, "reader of the file", nil)
	case err != io.EOF: //nolint:errorlint // as of any Reader
		return n, false, s.failed(err)
	case s.size >= 0:
		return n, false, s.failed(errors.New("it ended after " + strconv.FormatInt(s.read, 10) + " of " +
			strconv.FormatInt(s.size, 10) + " bytes"))
	}
	return n, true, nil
}

// failed returns the error for a failure of the caller's reader.
func (s *source) failed(err error) *transport.Error {
	err = scrub.Cause(err)
	kind := transport.KindOf(err)
	if kind == transport.Unknown {
		kind = transport.Invalid
	}
	return &transport.Error{Kind: kind, Op: transport.OpSend, Proto: proto, Err: &stepError{"reader of the file", err}}
}
