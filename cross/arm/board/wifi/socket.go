package wifi

import (
	"errors"
	"sync"
	"time"
)

const (
	// maxPayload is the longest datagram of a Socket. The answer of a time server has 48 bytes.
	maxPayload = 128
	// pollInterval is how often Read looks for a datagram.
	pollInterval = 5 * time.Millisecond
)

var (
	errClosed  = errors.New("wifi: the socket is closed")
	errTooLong = errors.New("wifi: the datagram has more than 128 bytes")
	errLate    = late{}
)

// late is the error of a Read whose deadline has passed.
type late struct{}

func (late) Error() string { return "wifi: no datagram before the deadline" }

// Timeout implements what sntp.Conn wants.
func (late) Timeout() bool { return true }

// Socket is a UDP socket between two endpoints. It implements sntp.Conn and keeps one received
// datagram: further ones are dropped until Read has taken it. It is safe for concurrent use.
type Socket struct {
	local, remote Endpoint
	send          func(frame []byte) error
	out           [headerSize + maxPayload]byte

	mu       sync.Mutex
	in       [maxPayload]byte
	length   int
	full     bool
	closed   bool
	deadline time.Time
}

// NewSocket returns a Socket that sends Ethernet frames by send, which must not keep them.
func NewSocket(local, remote Endpoint, send func(frame []byte) error) *Socket {
	return &Socket{local: local, remote: remote, send: send}
}

// Deliver takes a received Ethernet frame. Frames that are not for the socket are ignored: the
// sender is known by address and port.
func (s *Socket) Deliver(frame []byte) {
	from, to, payload, ok := parseFrame(frame)
	if !ok || to.IP != s.local.IP || to.Port != s.local.Port || from.IP != s.remote.IP || from.Port != s.remote.Port {
		return
	}
	s.mu.Lock()
	if !s.full && !s.closed {
		s.length, s.full = copy(s.in[:], payload), true
	}
	s.mu.Unlock()
}

// Write implements sntp.Conn. It must not be called by two goroutines at a time.
func (s *Socket) Write(p []byte) (int, error) {
	if len(p) > maxPayload {
		return 0, errTooLong
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return 0, errClosed
	}
	if err := s.send(appendFrame(s.out[:0], &s.local, &s.remote, p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Read implements sntp.Conn.
func (s *Socket) Read(p []byte) (int, error) {
	for {
		n, done, err := s.take(p)
		if done {
			return n, err
		}
		time.Sleep(pollInterval)
	}
}

func (s *Socket) take(p []byte) (n int, done bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return 0, true, errClosed
	case s.full:
		s.full = false
		return copy(p, s.in[:s.length]), true, nil
	case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
		return 0, true, errLate
	}
	return 0, false, nil
}

// SetReadDeadline implements sntp.Conn.
func (s *Socket) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
	return nil
}

// Close implements sntp.Conn. It unblocks Read.
func (s *Socket) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	return nil
}
