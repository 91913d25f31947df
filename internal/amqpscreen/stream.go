package amqpscreen

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	// HighWater is how many bytes may be pending before telemetry must wait.
	HighWater = 256 << 10
	// writeChunk is the most bytes in one write: a tunnel makes one frame of it.
	writeChunk = 16 << 10
	// smallBuffer and largeBuffer are the sizes of buffers. A large one holds HighWater and two
	// batches of telemetry.
	smallBuffer = 16 << 10
	largeBuffer = HighWater + 2*24<<10
	// fullBuffer is the least duration of a write that had to wait for room in the send buffer.
	fullBuffer = 50 * time.Millisecond
	// drainTime bounds how long the flusher writes pending bytes after Close.
	drainTime = 500 * time.Millisecond
)

// Stream is the net.Conn that the AMQP library gets. Below it are the tunnel and TLS, if any, and
// the socket.
//
// Write appends to a buffer and never blocks. Another goroutine, the flusher, is the only writer to
// the socket and sends all pending bytes together. So several frames share a packet, no goroutine
// of the library waits for the socket, and a write deadline, which the library takes from a
// caller's context, does not cut a frame in two. Telemetry calls WaitRoom before it sends.
//
// Each frame that is read passes the screen. begin and end frames are kept in order. The first
// failure is kept, because the library hides it.
type Stream struct {
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

// Causes of the end of a stream.
var (
	ErrClosed    = errors.New("the connection was closed on this side")
	ErrHubClosed = error(hubClosed{})
	ErrNotAMQP   = errors.New("the peer does not speak AMQP 1.0")
)

// hubClosed is io.EOF with a clearer text.
type hubClosed struct{}

func (hubClosed) Error() string { return "the hub closed the connection" }
func (hubClosed) Unwrap() error { return io.EOF }

// New returns a stream that must be ended by Close or Fail. socket is the connection below
// TLS and tunnel; without both it is outer.
func New(outer, socket net.Conn) *Stream {
	s := &Stream{
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
func (s *Stream) failed(err error) error {
	if err = s.Fail(err); errors.Is(err, ErrClosed) {
		return net.ErrClosed
	}
	return err
}

// Write appends a frame or a protocol header to the pending bytes. It does not block.
func (s *Stream) Write(p []byte) (int, error) {
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

// WaitRoom waits until less than HighWater bytes are pending, or the stream or ctx has ended.
func (s *Stream) WaitRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		full := len(s.pending) >= HighWater && s.err == nil && !s.closing
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
func (s *Stream) Close() error {
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

// Fail records the first failure and closes the socket, which unblocks its readers and writers. It
// returns the first failure.
func (s *Stream) Fail(err error) error {
	if errors.Is(err, net.ErrClosed) {
		err = ErrClosed
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

// Failure returns the first failure, nil while there is none.
func (s *Stream) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// flush is the flusher.
func (s *Stream) flush() {
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
				s.Fail(&WriteError{err})
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
				s.Fail(&WriteError{err})
			}
		}
	}
}

// send writes p in chunks. The socket, a dialer.ProgressConn, fails a write without progress. An
// empty p makes the tunnel write its replies.
func (s *Stream) send(p []byte) error {
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

// Progress returns when the peer last took bytes from a full buffer, and whether bytes wait in the
// socket's.
func (s *Stream) Progress() (at time.Time, waits bool) {
	at, waits = dialer.Progress(s.socket)
	return later(s.unjammed.get(), at), waits
}

// Received returns when the peer last sent something; zero: never.
func (s *Stream) Received() time.Time { return s.received.get() }

// Dead is closed by the first failure.
func (s *Stream) Dead() <-chan struct{} { return s.dead }

// Flushed is closed when the flusher, the only goroutine of the stream, has ended.
func (s *Stream) Flushed() <-chan struct{} { return s.flushed }

// Sessions returns how many AMQP sessions the peer allows; 0 before its open.
func (s *Stream) Sessions() int { return int(s.screen.sessions.Load()) }

// SASL reports whether the peer has sent a protocol header of SASL.
func (s *Stream) SASL() bool { return s.screen.sasl.Load() }

// AcquireSession waits until the peer allows one more AMQP session, which it counts. ended is
// closed when the connection has ended.
func (s *Stream) AcquireSession(ctx context.Context, ended <-chan struct{}) error {
	return s.sessions.acquire(ctx, s.Sessions(), ended)
}

// hangUp closes the connection orderly. It bounds the close_notify of TLS, for which crypto/tls
// would wait 5 s.
func (s *Stream) hangUp() {
	if s.Conn != s.socket {
		s.mu.Lock()
		rest := time.Until(s.drainBy)
		s.mu.Unlock()
		t := time.AfterFunc(rest, func() { _ = s.socket.Close() })
		_ = s.Conn.Close()
		t.Stop()
	}
	s.Fail(ErrClosed)
}

// SetDeadline and SetWriteDeadline do nothing: the dial's context bounds the handshake, and the
// flusher bounds writes.

func (s *Stream) SetDeadline(time.Time) error      { return nil }
func (s *Stream) SetWriteDeadline(time.Time) error { return nil }

// WriteError is a failure of the flusher: the network took no data.
type WriteError struct{ Err error }

func (e *WriteError) Error() string {
	if errors.Is(e.Err, os.ErrDeadlineExceeded) {
		return "the hub accepts no data: " + e.Err.Error()
	}
	return e.Err.Error()
}

func (e *WriteError) Unwrap() error { return e.Err }

// poke puts a token into ch, of capacity 1, unless it is full.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
