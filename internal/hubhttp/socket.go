package hubhttp

import (
	"net"
	"sync"
	"time"
)

// socket is the connection below TLS. It records how the hub ended it, and counts the goroutines
// inside its methods. net/http has two goroutines per connection, which cannot be joined. After the
// count has reached zero on a closed socket, they no longer touch our memory.
type socket struct {
	net.Conn
	mu      sync.Mutex
	active  int
	closed  bool
	drained chan struct{} // closed when the socket is closed and no goroutine is in its methods
	closing bool          // we are closing: later errors are not the peer's
	err     error         // the first error that we did not cause
	heard   time.Time     // when the latest byte came
}

func newSocket(c net.Conn) *socket { return &socket{Conn: c, drained: make(chan struct{})} }

func (s *socket) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.active++
	return true
}

// leave ends a method that enter began, and that read n bytes.
func (s *socket) leave(n int, err error) {
	s.mu.Lock()
	if n > 0 {
		s.heard = time.Now()
	}
	if err != nil && s.err == nil && !s.closed && !s.closing {
		s.err = err
	}
	s.active--
	last := s.closed && s.active == 0
	s.mu.Unlock()
	if last {
		close(s.drained)
	}
}

func (s *socket) Read(b []byte) (int, error) {
	if !s.enter() {
		return 0, net.ErrClosed
	}
	n, err := s.Conn.Read(b)
	s.leave(n, err)
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	if !s.enter() {
		return 0, net.ErrClosed
	}
	n, err := s.Conn.Write(b)
	s.leave(0, err)
	return n, err
}

// Close closes the socket; goroutines in its methods get an error.
func (s *socket) Close() error {
	s.mu.Lock()
	was, empty := s.closed, s.active == 0
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	err := s.Conn.Close()
	if empty {
		close(s.drained)
	}
	return err
}

// closeAndWait is Close that waits until no goroutine is in its methods.
func (s *socket) closeAndWait() {
	_ = s.Close()
	<-s.drained
}

// markClosing marks later errors as a consequence of our own close.
func (s *socket) markClosing() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
}

// loss returns how the connection was lost: io.EOF if the hub closed it cleanly, nil if it was not
// lost or TLS sent close_notify.
func (s *socket) loss() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
