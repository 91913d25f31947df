package hub

import (
	"errors"
	"net"
	"sync"
	"time"
)

// maxUnsent is how many bytes may be queued for a client that does not read. It holds two million
// PUBACKs, or a window of C2D messages of the largest size.
const maxUnsent = 8 << 20

// fewUnsent is how many bytes may be queued before writers of bulk data wait, so that a client may
// read slowly.
const fewUnsent = 1 << 20

// keepUnsent is the largest buffer that is used again. It holds what a writer of bulk data queues.
const keepUnsent = 2 * fewUnsent

// keepIdle is the largest buffer that is used again after a write that fits into it: an idle client
// gets small packets.
const keepIdle = 4 << 10

// ErrSlowReader is the cause of a connection's end when its client did not read the hub's data.
var ErrSlowReader = errors.New("client does not read")

// A Socket is a TCP connection whose Write never blocks: a goroutine sends the queued bytes. So a
// client that does not read cannot block a writer that holds a lock or alternates with reads, and
// two-way traffic cannot deadlock. In-memory connections behave the same way.
type Socket struct {
	tcp *net.TCPConn

	mu      sync.Mutex
	work    sync.Cond
	queue   []byte
	unsent  int   // bytes in queue and in the write in progress
	err     error // why writing failed
	ending  bool  // the stream ends after the queue
	closing bool  // Close was called: the connection ends after the queue
	dead    bool  // the connection has ended

	room chan struct{} // closed when few bytes are unsent, or the connection has ended; nil = no waiters
}

var _ net.Conn = (*Socket)(nil)

func newSocket(tcp *net.TCPConn) *Socket {
	s := &Socket{tcp: tcp}
	s.work.L = &s.mu
	return s
}

// send is the goroutine that writes. It ends when the connection is closed and the queue is sent or
// cannot be sent.
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
			if s.unsent -= len(buf); s.unsent <= fewUnsent {
				s.wakeLocked()
			}
			if cap(buf) > keepUnsent || cap(buf) > keepIdle && len(buf) <= keepIdle {
				buf = nil // free the memory of a burst
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
	s.wakeLocked()
}

// crowded returns nil if few bytes are unsent, or else a channel that is closed when that is so or
// the connection has ended.
func (s *Socket) crowded() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unsent <= fewUnsent || s.dead {
		return nil
	}
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return s.room
}

func (s *Socket) wakeLocked() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
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

// Read reads from the connection. It blocks until there is data.
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

// CloseWrite ends the outgoing direction after the queue is sent.
func (s *Socket) CloseWrite() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	s.work.Signal()
	return nil
}

// Close ends the connection after the queue is sent. The client has one second to read it.
func (s *Socket) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLocked()
	return nil
}

func (s *Socket) closeLocked() {
	if s.closing || s.dead {
		return
	}
	s.closing = true
	s.tcp.SetReadDeadline(time.Now()) // wakes a Read
	s.tcp.SetWriteDeadline(time.Now().Add(CloseLimit))
	s.work.Signal()
}

// abort resets the connection: at once, or after the queue is sent, so that a client that reads has
// what the hub wrote before. The kernel discards what it has not sent then.
func (s *Socket) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	s.tcp.SetLinger(0)
	if s.unsent > 0 {
		s.closeLocked()
		return
	}
	s.closing = true
	s.failLocked(net.ErrClosed)
	s.work.Signal()
}

// SetDeadline has no effect after Close, which sets its own deadlines.
func (s *Socket) SetDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	return s.tcp.SetDeadline(t)
}

// SetReadDeadline is part of net.Conn; the hub does not call it.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	return s.tcp.SetReadDeadline(t)
}

// SetWriteDeadline does nothing, because Write never blocks. TLS sets a deadline in the past when
// it ends, which must not stop the queue.
func (s *Socket) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr returns the hub's address.
func (s *Socket) LocalAddr() net.Addr { return s.tcp.LocalAddr() }

// RemoteAddr returns the client's address.
func (s *Socket) RemoteAddr() net.Addr { return s.tcp.RemoteAddr() }
