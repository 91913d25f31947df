package amqpclient

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	// MaxFrame is the size of the largest frame, as announced in the open.
	MaxFrame = 64 << 10
	// idleBuffer is the size of the buffer of a connection that receives little.
	idleBuffer = 2 << 10
)

// input is what was read. buf[at:end] is not used yet.
type input struct {
	buf     []byte
	at, end int
	frame   inFrame // the latest
}

func (in *input) rest() []byte { return in.buf[in.at:in.end] }

// space makes room for the rest of a frame of size bytes, and for more.
func (in *input) space(size int) []byte {
	rest := in.rest()
	full := in.end == len(in.buf) && in.buf != nil
	large := len(in.buf) == MaxFrame
	switch {
	case size > idleBuffer && !large, full && !large:
		to := readBuffers.Get().(*[MaxFrame]byte)[:]
		copy(to, rest)
		in.buf = to
	case large && size <= idleBuffer && len(rest) == 0 && !full, in.buf == nil:
		if large {
			readBuffers.Put((*[MaxFrame]byte)(in.buf))
		}
		in.buf = make([]byte, idleBuffer)
	default:
		copy(in.buf, rest)
	}
	in.at, in.end = 0, len(rest)
	return in.buf[in.end:]
}

// fill reads at least one byte, for a frame of size bytes.
func (c *Conn) fill(size int) error {
	if err := c.waitRead(); err != nil {
		return err
	}
	_ = c.socket.SetReadDeadline(time.Now().Add(c.idle))
	n, err := c.outer.Read(c.in.space(size))
	c.in.end += n
	switch {
	case n > 0:
		c.received.now()
		return nil // the next read returns the error again
	case err == io.EOF: //nolint:errorlint // an error around it, such as of a WebSocket, says more
		return ErrHubClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &silenceError{err}
	case err != nil:
		return err
	}
	return nil
}

// silenceError is a failure to read: the peer sent nothing within the idle time-out.
type silenceError struct{ err error }

func (e *silenceError) Error() string { return "the hub sent nothing in time: " + e.err.Error() }
func (e *silenceError) Unwrap() error { return e.err }

// nextFrame reads and checks a frame, whose type must be kind. It is valid until the next call. It
// returns nil for an empty frame.
func (c *Conn) nextFrame(kind byte) (*inFrame, error) {
	for {
		b := c.in.rest()
		size := 4
		if len(b) >= size {
			n := binary.BigEndian.Uint32(b)
			if n < wire.HeaderSize || n > MaxFrame {
				return nil, broken("frame", "has the size %d, not from %d to %d", n, wire.HeaderSize,
					MaxFrame).during(c.Sessions() == 0)
			}
			if size = int(n); len(b) >= size {
				c.in.at += size
				f := &c.in.frame
				if bad := f.parse(b[:size:size], kind); bad != nil {
					return nil, bad.during(c.Sessions() == 0)
				}
				if f.composite == nil {
					return nil, nil
				}
				return f, nil
			}
		}
		if err := c.fill(size); err != nil {
			return nil, err
		}
	}
}

// read handles the frames of an open connection. It returns why the connection ends.
func (c *Conn) read() error {
	var after calls
	for {
		f, err := c.nextFrame(wire.FrameAMQP)
		if err != nil {
			return err
		}
		if f == nil {
			continue
		}
		c.mu.Lock()
		err = c.frameLocked(f, &after)
		if len(c.out.pending) > 0 && err == nil {
			c.kickLocked()
		}
		c.mu.Unlock()
		after.run()
		if err != nil {
			_ = c.socket.SetWriteDeadline(time.Now().Add(goodbyeTime))
			c.Flush() // the answer to a close
			return err
		}
	}
}

// frameLocked handles a frame. mu is held.
func (c *Conn) frameLocked(f *inFrame, after *calls) error {
	const failure = 0
	switch f.code {
	case codeClose:
		c.writeLocked(0, &wire.Close{})
		return f.condition("connection", failure)
	case codeBegin:
		return orNil(c.begunLocked(f))
	}
	s := c.remote[f.channel]
	if s == nil {
		return broken(f.name, "is on channel %d, which has no session", f.channel).during(false)
	}
	var bad *Violation
	switch f.code {
	case codeAttach:
		bad = s.attachedLocked(f)
	case codeFlow:
		bad = s.flowLocked(f, after)
	case codeTransfer:
		bad = s.transferLocked(f, after)
	case codeDisposition:
		bad = s.dispositionLocked(f, after)
	case codeDetach:
		bad = s.detachedLocked(f, after)
	case codeEnd:
		s.endedLocked(f, after)
	default:
		bad = misplaced(f.code)
	}
	return orNil(bad)
}

// orNil returns a violation as an error.
func orNil(bad *Violation) error {
	if bad == nil {
		return nil
	}
	return bad
}

// goodbyeTime is how long the answer to a close may take.
const goodbyeTime = 100 * time.Millisecond

// calls are what is called after a frame, without the lock.
type calls struct {
	outcomes []settlement
	calls    []func()
}

type settlement struct {
	delivery Delivery
	state    wire.DeliveryState
}

func (a *calls) add(f func()) { a.calls = append(a.calls, f) }

func (a *calls) run() {
	for i := range a.outcomes {
		a.outcomes[i].delivery.Settled(a.outcomes[i].state)
	}
	clear(a.outcomes)
	a.outcomes = a.outcomes[:0]
	for i, f := range a.calls {
		f()
		a.calls[i] = nil
	}
	a.calls = a.calls[:0]
}
