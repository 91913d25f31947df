package update

import (
	"context"
	"errors"
	"io"

	"github.com/hubline-iot/hubline/transport"
)

// Opener returns the content of an image behind have, which is what the slot has of it.
type Opener func(ctx context.Context, have io.Reader) (io.ReadCloser, error)

// stream is a Source that reads from what an Opener returns, and opens it again after a failure.
type stream struct {
	open func(have io.Reader) (io.ReadCloser, error)
	slot func(n int64) io.Reader // the first n bytes in the slot
	r    io.ReadCloser           // nil: not open
	off  int64                   // where r continues
}

var errShort = fault(transport.Protocol, "the content ends before the image does")

func (s *stream) ReadAt(_ context.Context, p []byte, off int64) error {
	if s.r == nil || s.off != off {
		s.close()
		r, err := s.open(s.slot(off))
		if err != nil {
			return err
		}
		s.r, s.off = r, off
	}
	n, err := io.ReadFull(s.r, p)
	s.off += int64(n)
	if err == nil {
		return nil
	}
	s.close()
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errShort
	}
	return err
}

func (s *stream) close() {
	if s.r != nil {
		_ = s.r.Close()
	}
	s.r = nil
}
