package hub

import (
	"errors"
	"net"
	"sync"
	"time"
)

// maxUnsent is how many bytes may wait for a client that does not read. It holds two million
// PUBACKs, or a window of C2D messages of the largest size.
const maxUnsent = 8 << 20

// ErrSlowReader is the cause of a connection's end when its client did not read what the hub sent.
var ErrSlowReader = errors.New("client does not read")

// A Socket is a TCP connection whose writes never wait: a goroutine of its own sends what they
// leave. So nobody who writes, be it under a lock or between two reads, is held up by a client that
// does not read, and two-way traffic cannot lock up. It makes real connections behave as those in
// memory do.
type Socket struct {
	tcp *net.TCPConn

	mu      sync.Mutex
	work    sync.Cond
	queue   []byte
	unsent  int   // bytes in queue, and in what is being written
	err     error // why writing failed
	ending  bool  // the stream ends behind the queue
	closing bool  // Close was called: the connection ends behind the queue
	dead    bool  // the connection has ended
}

var _ net.Conn = (*Socket)(nil)

func newSocket(tcp *net.TCPConn) *Socket {
	s := &Socket{tcp: tcp}
	s.work.L = &s.mu
	return s
}

// send is the goroutine that writes. It ends when the connection is closed and everything was sent,
// or could not be.
func (s *Socket) send() {
	var buf []byte
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.dead:
			return
		case len(s.queue) > 0:
			buf, s.queue = s.queue, buf[:0]
			s.mu.Unlock()
			_, err := s.tcp.Write(buf)
			s.mu.Lock()
			s.unsent -= len(buf)
			if cap(buf) > 1<<20 {
				buf = nil // a burst should not be paid for until the end
			}
			if err != nil {
				s.failLocked(err)
			}
		case s.closing:
			s.dead = true
			s.tcp.Close()
		case s.ending:
			s.ending = false
			s.tcp.CloseWrite()
		default:
			s.work.Wait()
		}
	}
}

func (s *Socket) failLocked(err error) {
	if s.err == nil {
		s.err = err
	}
	s.dead, s.queue = true, nil
	s.tcp.Close()
}

// Write queues a copy of p.
func (s *Socket) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return 0, s.err
	case s.closing, s.dead:
		return 0, net.ErrClosed
	case s.unsent+len(p) > maxUnsent:
		return 0, ErrSlowReader
	}
	s.queue = append(s.queue, p...)
	s.unsent += len(p)
	s.work.Signal()
	return len(p), nil
}

// Read waits for bytes.
func (s *Socket) Read(p []byte) (int, error) {
	n, err := s.tcp.Read(p)
	if err == nil {
		return n, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil && errors.Is(err, net.ErrClosed):
		err = s.err
	case s.closing:
		err = net.ErrClosed
	}
	return n, err
}

// CloseWrite ends the outgoing direction behind what is queued.
func (s *Socket) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.work.Signal()
	return nil
}

// Close ends the connection behind what is queued, for which the client has a second.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.dead {
		return nil
	}
	s.closing = true
	s.tcp.SetReadDeadline(time.Now()) // wakes a Read
	s.tcp.SetWriteDeadline(time.Now().Add(CloseLimit))
	s.work.Signal()
	return nil
}

// abort resets the connection: what is queued is lost.
func (s *Socket) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	s.tcp.SetLinger(0)
	s.closing = true
	s.failLocked(net.ErrClosed)
	s.work.Signal()
}

// SetDeadline is of no effect after Close, which has deadlines of its own.
func (s *Socket) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	return s.tcp.SetDeadline(t)
}

// SetReadDeadline is part of net.Conn; nobody calls it.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	return s.tcp.SetReadDeadline(t)
}

// SetWriteDeadline does nothing, for no Write waits. TLS sets one in the past when it ends, which
// shall not stop what is queued.
func (s *Socket) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr is the hub's address.
func (s *Socket) LocalAddr() net.Addr { return s.tcp.LocalAddr() }

// RemoteAddr is the client's address.
func (s *Socket) RemoteAddr() net.Addr { return s.tcp.RemoteAddr() }
