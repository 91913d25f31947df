package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/hubline-iot/hubline/transport"
)

// source yields the bodies of messages.
type source interface {
	// next returns the next body; not ok after the last.
	next(ctx context.Context) (body []byte, ok bool, err error)
	// what names the body that next returned last.
	what() string
	// total is the number of bodies; 0: not known.
	total() int
}

// repeated is one body, a number of times.
type repeated struct {
	body []byte
	left int
}

func (r *repeated) next(ctx context.Context) ([]byte, bool, error) {
	r.left--
	return r.body, r.left >= 0, ctx.Err()
}

func (*repeated) what() string { return "the message" }
func (r *repeated) total() int { return max(0, r.left) }

// readBody reads a whole body.
func readBody(r io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, transport.MaxMessageSize+1))
	if err == nil && len(body) > transport.MaxMessageSize {
		err = usage("the body has more than %d bytes, and the hub takes no more; use -lines or hubline upload",
			transport.MaxMessageSize)
	}
	return body, err
}

// interruptible returns a reader of r whose Read also ends with ctx. A goroutine reads, because a
// read of a terminal or a pipe cannot be interrupted: after Ctrl-C it ends with the process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() { // ends with the input
		_, err := io.Copy(in, r)
		_ = in.CloseWithError(err)
	}()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(errNoEnd) })
	return out
}

// errNoEnd is the end of the input by Ctrl-C.
var errNoEnd = errors.New("interrupted before the end of the input")

// lines are the lines of an input. A goroutine reads them, for the same reason.
type lines struct {
	most   int
	read   chan line
	number int // of the line that was taken last, from 1
	taken  int // lines that are messages
	failed *unsent
}

type line struct {
	body []byte
	err  error
}

// newLines starts reading. most is the number of lines; 0: all. Lines that are too long are added
// to failed.
func newLines(r io.Reader, most int, failed *unsent) *lines {
	l := &lines{most: most, read: make(chan line, 64), failed: failed}
	go func() { // ends with the input
		defer close(l.read)
		in := bufio.NewReaderSize(r, transport.MaxMessageSize+2)
		for {
			body, err := in.ReadSlice('\n')
			tooLong := errors.Is(err, bufio.ErrBufferFull) || len(trimEnd(body)) > transport.MaxMessageSize
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.ReadSlice('\n')
			}
			switch {
			case tooLong:
				l.read <- line{err: errTooLong}
			case len(body) > 0:
				l.read <- line{body: append([]byte(nil), trimEnd(body)...)}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				l.read <- line{err: err}
				return
			}
		}
	}()
	return l
}

var errTooLong = fmt.Errorf("it has more than %d bytes; split it", transport.MaxMessageSize)

func trimEnd(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\n' {
		b = b[:n-1]
	}
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}

// next returns the next line that is not empty. Lines that are too long are left out, so that one
// of them does not end a log's stream.
func (l *lines) next(ctx context.Context) ([]byte, bool, error) {
	if l.most > 0 && l.taken >= l.most {
		return nil, false, nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil, false, ctx.Err()
		case got, ok := <-l.read:
			l.number++
			switch {
			case !ok:
				return nil, false, nil
			case errors.Is(got.err, errTooLong):
				l.failed.add(l.what(), got.err)
			case got.err != nil:
				return nil, false, fmt.Errorf("input: %w", got.err)
			case len(got.body) > 0:
				l.taken++
				return got.body, true, nil
			}
		}
	}
}

func (l *lines) what() string { return fmt.Sprintf("line %d", l.number) }
func (l *lines) total() int   { return l.most }
