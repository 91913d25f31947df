package amqp

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	// highWater is how many bytes may be pending before telemetry must wait.
	highWater = 256 << 10
	// writeChunk is the most bytes in one write: a tunnel makes one frame of it.
	writeChunk = 16 << 10
	// smallBuffer and largeBuffer are the sizes of buffers. A large one holds highWater and two
	// batches.
	smallBuffer = 16 << 10
	largeBuffer = highWater + 2*batchBytes
	// fullBuffer is the least duration of a write that had to wait for room in the send buffer.
	fullBuffer = 50 * time.Millisecond
	// drainTime bounds how long the flusher writes pending bytes after Close.
	drainTime = 500 * time.Millisecond
)

// stream is the net.Conn that the AMQP library gets. Below it are the tunnel and TLS, if any, and
// the socket.
//
// Write appends to a buffer and never blocks. Another goroutine, the flusher, is the only writer to
// the socket and sends all pending bytes together. So several frames share a packet, no goroutine
// of the library waits for the socket, and a write deadline, which the library takes from a
// caller's context, does not cut a frame in two. Telemetry calls waitRoom before it sends.
//
// Each frame that is read passes the screen. begin and end frames are kept in order. The first
// failure is kept, because the library hides it.
type stream struct {
	net.Conn                 // tunnel, TLS or the socket; only stream calls its Read and Write
	socket   net.Conn        // the lowest layer
	owed     <-chan struct{} // signals that the tunnel has replies to write, such as a pong; nil: never
	wake     chan struct{}   // capacity 1: wakes the flusher
	dead     chan struct{}   // closed by the first failure
	flushed  chan struct{}   // closed when the flusher has ended

	received instant // when the peer last sent something
	unjammed instant // when the network last took bytes after its buffers were full

	in       frameSplitter // owned by the reading goroutine
	screen   screen
	sessions sessionCount

	mu       sync.Mutex // guards the fields below; never held during I/O
	pending  []byte
	channels channels
	room     chan struct{} // closed when the flusher takes pending; nil without waiters
	err      error         // the first failure
	closing  bool          // Close was called
	drainBy  time.Time     // set by Close
}

var (
	errClosed    = errors.New("the connection was closed on this side")
	errHubClosed = errors.New("the hub closed the connection")
)

// newStream returns a stream that must be ended by Close or fail. socket is the connection below
// TLS and tunnel; without both it is outer.
func newStream(outer, socket net.Conn) *stream {
	s := &stream{
		Conn: outer, socket: socket,
		wake: make(chan struct{}, 1), dead: make(chan struct{}), flushed: make(chan struct{}),
	}
	if o, ok := outer.(netopt.ControlWriter); ok {
		s.owed = o.ControlPending()
	}
	now := time.Now()
	s.received.base, s.unjammed.base = now, now
	go s.flush()
	return s
}

// failed ends the stream and returns the error for the library: net.ErrClosed for an end that this
// side caused.
func (s *stream) failed(err error) error {
	if err = s.fail(err); err == errClosed {
		return net.ErrClosed
	}
	return err
}

// Write appends a frame or a protocol header to the pending bytes. It does not block.
func (s *stream) Write(p []byte) (int, error) {
	s.screen.recordSent(p)
	s.mu.Lock()
	err := s.err
	if err == nil && s.closing {
		err = net.ErrClosed
	}
	if err == nil {
		s.pending = s.channels.pass(room(s.pending, len(p)), p)
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	poke(s.wake)
	return len(p), nil
}

// waitRoom waits until less than highWater bytes are pending, or the stream or ctx has ended.
func (s *stream) waitRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		full := len(s.pending) >= highWater && s.err == nil && !s.closing
		if full && s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		if !full {
			return
		}
		select {
		case <-room:
		case <-s.dead:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the stream and returns at once. The flusher still sends the pending bytes, for
// drainTime at most.
func (s *stream) Close() error {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		s.drainBy = time.Now().Add(drainTime)
		_ = s.socket.SetWriteDeadline(s.drainBy) // shortens a write in progress
	}
	s.mu.Unlock()
	poke(s.wake)
	return nil
}

// fail records the first failure and closes the socket, which unblocks its readers and writers. It
// returns the first failure.
func (s *stream) fail(err error) error {
	if errors.Is(err, net.ErrClosed) {
		err = errClosed
	}
	s.mu.Lock()
	first := s.err == nil
	if first {
		s.err = err
	}
	err = s.err
	s.mu.Unlock()
	if first {
		close(s.dead)
		_ = s.socket.Close()
	}
	return err
}

// failure returns the first failure, nil while there is none.
func (s *stream) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// flush is the flusher.
func (s *stream) flush() {
	defer close(s.flushed)
	for {
		s.mu.Lock()
		out, closing, failed := s.pending, s.closing, s.err != nil
		s.pending = nil
		if s.room != nil {
			close(s.room)
			s.room = nil
		}
		s.mu.Unlock()
		switch {
		case failed:
			return
		case len(out) > 0:
			if err := s.send(out); err != nil {
				s.fail(&writeError{err})
			}
		case closing:
			s.hangUp()
			return
		}
		release(out)
		s.mu.Lock()
		idle := len(s.pending) == 0 && s.err == nil && !s.closing
		s.mu.Unlock()
		if !idle {
			continue
		}
		select {
		case <-s.wake:
		case <-s.dead:
		case <-s.owed:
			if err := s.send(nil); err != nil {
				s.fail(&writeError{err})
			}
		}
	}
}

// send writes p in chunks. The socket, a dialer.ProgressConn, fails a write without progress. An
// empty p makes the tunnel write its replies.
func (s *stream) send(p []byte) error {
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), writeChunk)
		began := time.Now()
		if _, err := s.Conn.Write(p[:n]); err != nil {
			return err
		}
		if time.Since(began) > fullBuffer {
			s.unjammed.now() // only a living peer makes room
		}
		p = p[n:]
	}
	return nil
}

// progress returns when the peer last took bytes from a full buffer.
func (s *stream) progress() time.Time { return later(s.unjammed.get(), dialer.Progress(s.socket)) }

// hangUp closes the connection orderly. It bounds the close_notify of TLS, for which crypto/tls
// would wait 5 s.
func (s *stream) hangUp() {
	if s.Conn != s.socket {
		s.mu.Lock()
		rest := time.Until(s.drainBy)
		s.mu.Unlock()
		t := time.AfterFunc(rest, func() { _ = s.socket.Close() })
		_ = s.Conn.Close()
		t.Stop()
	}
	s.fail(errClosed)
}

// SetDeadline and SetWriteDeadline do nothing: the dial's context bounds the handshake, and the
// flusher bounds writes.

func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// writeError is a failure of the flusher.
type writeError struct{ err error }

func (e *writeError) Error() string {
	if errors.Is(e.err, os.ErrDeadlineExceeded) {
		return "the hub accepts no data: " + e.err.Error()
	}
	return e.err.Error()
}

func (e *writeError) Unwrap() error { return e.err }

// poke puts a token into ch, of capacity 1, unless it is full.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
