package amqpscreen

import (
	"encoding/binary"
	"errors"
	"io"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	// MaxFrame is the size of the largest frame, as announced in the open.
	MaxFrame = 64 << 10
	// maxUnread is how many bytes may be buffered for the peer before reading stops. It bounds memory
	// for a peer that causes many answers and reads none.
	maxUnread = 1 << 20
)

// frameSplitter splits the bytes of the peer into frames for the screen. Unchanged frames stay in
// the library's buffer. buf holds the rest: an incomplete frame, and the bytes behind a frame that
// was rewritten or dropped.
type frameSplitter struct {
	buf   []byte
	begin int // the library gets buf[begin:end] next
	end   int
	raw   int    // buf[raw:] is not checked yet
	other []byte // frames of the screen, which the library gets after buf[begin:end]
	bad   error  // a violation, which ends the connection after other

	idle time.Duration // how long a read may take; 0: for ever
}

// Read returns frames that passed the screen. One goroutine calls it.
func (s *Stream) Read(p []byte) (int, error) {
	in := &s.in
	for reads := 0; ; reads++ {
		if n := in.take(p); n > 0 {
			return n, nil
		}
		if ended := s.screen.ended; ended > 0 {
			s.screen.ended = 0
			s.sessions.release(ended)
		}
		if in.bad != nil {
			return 0, s.failed(in.bad)
		}
		into := p
		if in.raw < len(in.buf) {
			pass, skip := in.screenFrames(&s.screen, in.buf[in.raw:])
			in.begin, in.end, in.raw = in.raw, in.raw+pass, in.raw+pass+skip
			if pass+skip > 0 || in.bad != nil {
				continue
			}
			into = in.space()
		} else {
			in.drop()
		}
		if reads > 0 && in.idle > 0 {
			_ = s.socket.SetReadDeadline(time.Now().Add(in.idle)) // the peer is alive
		}
		if err := s.waitRead(); err != nil {
			return 0, s.failed(err)
		}
		n, err := s.Conn.Read(into)
		if n > 0 {
			s.received.now()
		}
		switch {
		case n > 0 && in.buf != nil: // the next read returns the error again
			in.buf = in.buf[:len(in.buf)+n]
		case n > 0:
			pass, skip := in.screenFrames(&s.screen, p[:n])
			if rest := p[pass+skip : n]; in.bad == nil && len(rest) > 0 {
				in.buf = append(room(nil, len(rest)), rest...)
			}
			if pass > 0 {
				return pass, nil
			}
		case errors.Is(err, io.EOF):
			return 0, s.failed(ErrHubClosed)
		case err != nil:
			return 0, s.failed(err)
		}
	}
}

// waitRead waits until less than maxUnread bytes are pending. It returns the stream's failure: what
// the peer sent before would be read or not, because Fail closes the socket meanwhile.
func (s *Stream) waitRead() error {
	for {
		s.mu.Lock()
		err := s.err
		full := len(s.pending) >= maxUnread && err == nil
		if full && s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		if !full {
			return err
		}
		select {
		case <-room:
		case <-s.dead:
		}
	}
}

// SetReadDeadline sets the library's idle time-out. The library calls it before each read.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.in.idle = 0
	if !t.IsZero() {
		s.in.idle = time.Until(t)
	}
	return s.socket.SetReadDeadline(t)
}

// take copies to p the bytes that the library gets next.
func (in *frameSplitter) take(p []byte) (n int) {
	if in.begin < in.end {
		n = copy(p, in.buf[in.begin:in.end])
		in.begin += n
		return n
	}
	n = copy(p, in.other)
	if in.other = in.other[n:]; len(in.other) == 0 {
		in.other = nil // it may be large
	}
	return n
}

// space returns room for the rest of an incomplete frame.
func (in *frameSplitter) space() []byte {
	n := copy(in.buf, in.buf[in.raw:])
	in.buf, in.begin, in.end, in.raw = in.buf[:n], 0, 0, 0
	more := smallBuffer / 4
	if n >= 4 {
		more = max(more, int(binary.BigEndian.Uint32(in.buf))-n) // at most MaxFrame, which size has checked
	}
	if n+more > smallBuffer && n+more > cap(in.buf) {
		larger := append(make([]byte, 0, MaxFrame), in.buf...)
		release(in.buf)
		in.buf = larger
	} else {
		in.buf = room(in.buf, more)
	}
	return in.buf[n:cap(in.buf)]
}

// drop returns the buffer to its pool.
func (in *frameSplitter) drop() {
	release(in.buf)
	in.buf, in.begin, in.end, in.raw = nil, 0, 0, 0
}

// screenFrames passes the frames at the beginning of b through the screen. The first pass bytes
// stay unchanged. in.other replaces the next skip bytes. screenFrames stops behind them, before an
// incomplete frame, or at a violation, which it puts into in.bad.
func (in *frameSplitter) screenFrames(s *screen, b []byte) (pass, skip int) {
	in.other = nil
	for {
		rest := b[pass:]
		n, whole, err := s.size(rest)
		if err != nil {
			in.bad = err
			return pass, 0
		}
		if !whole {
			return pass, 0
		}
		var out []byte
		if out, in.bad = s.check(rest[:n:n]); in.bad != nil {
			return pass, 0
		}
		if len(out) == 0 || &out[0] != &rest[0] {
			in.other = out
			return pass, n
		}
		pass += n
	}
}

// size returns the size of the frame or protocol header at the beginning of b. whole: b holds all
// of it.
func (s *screen) size(b []byte) (n int, whole bool, err error) {
	const header = "AMQP"
	if s.phase == closed {
		return len(b), len(b) > 0, nil
	}
	if s.phase == atHeader {
		if begin := min(len(b), len(header)); string(b[:begin]) != header[:begin] {
			return 0, false, ErrNotAMQP
		}
		return wire.HeaderSize, len(b) >= wire.HeaderSize, nil
	}
	if len(b) < 4 {
		return 0, false, nil
	}
	size := binary.BigEndian.Uint32(b)
	if size < wire.HeaderSize || size > MaxFrame {
		return 0, false, broken("frame", "has the size %d, not from %d to %d", size, wire.HeaderSize,
			MaxFrame).during(s.phase)
	}
	return int(size), len(b) >= int(size), nil
}

// check checks a whole frame or protocol header. It has the results of frame.
func (s *screen) check(b []byte) ([]byte, error) {
	switch s.phase {
	case closed:
		return nil, nil
	case atHeader:
		s.header(b[4])
		return b, nil
	case atMechanisms, atOutcome, atOpen, running:
	}
	return s.frame(b)
}
