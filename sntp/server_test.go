package sntp

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// timeServer is a server written from the standard. It refuses requests that are not as they should
// be.
type timeServer struct {
	now      func() time.Time
	there    time.Duration // how long a request takes
	back     time.Duration // and an answer
	change   func(answer []byte)
	silent   bool
	before   [][]byte // datagrams ahead of each answer
	mu       sync.Mutex
	requests []time.Time
}

// stamp returns t in 32.32 fixed point, in whatever era it is.
func stamp(t time.Time) uint64 {
	seconds := uint64(t.Unix()+2208988800) & 0xffffffff
	return seconds<<32 | uint64(t.Nanosecond())<<32/1e9
}

// answer returns the answer to a request, nil for none.
func (s *timeServer) answer(request []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, time.Now())
	if s.silent || len(request) != 48 || request[0] != 0x23 {
		return nil
	}
	for _, b := range request[1:40] {
		if b != 0 {
			return nil
		}
	}
	p := make([]byte, 48)
	p[0] = 4<<3 | 4
	p[1] = 2
	p[3] = 0xe9
	binary.BigEndian.PutUint32(p[4:], 0x0400)
	binary.BigEndian.PutUint32(p[8:], 0x0800)
	copy(p[12:], []byte{127, 0, 0, 1})
	binary.BigEndian.PutUint64(p[16:], stamp(s.now().Add(-time.Minute)))
	copy(p[24:32], request[40:48])
	binary.BigEndian.PutUint64(p[32:], stamp(s.now()))
	binary.BigEndian.PutUint64(p[40:], stamp(s.now()))
	if s.change != nil {
		s.change(p)
	}
	return p
}

func (s *timeServer) asked() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.requests...)
}

// servers are a network of servers in memory, by name.
type servers map[string]*timeServer

var errUnreachable = errors.New("no route to the server")

func (n servers) dial(_ context.Context, name string) (Conn, error) {
	s := n[name]
	if s == nil {
		return nil, errUnreachable
	}
	return &link{server: s, in: make(chan []byte, 100), closed: make(chan struct{})}, nil
}

// link is a connection to a server, in fake time.
type link struct {
	server   *timeServer
	in       chan []byte
	closed   chan struct{}
	once     sync.Once
	deadline time.Time
}

func (l *link) Write(p []byte) (int, error) {
	request := append([]byte(nil), p...)
	go func() { // ends after the two ways
		time.Sleep(l.server.there)
		answer := l.server.answer(request)
		time.Sleep(l.server.back)
		for _, stray := range l.server.before {
			l.in <- stray
		}
		if answer != nil {
			l.in <- answer
		}
	}()
	return len(p), nil
}

func (l *link) Read(p []byte) (int, error) {
	timer := time.NewTimer(time.Until(l.deadline))
	defer timer.Stop()
	select {
	case b := <-l.in:
		return copy(p, b), nil
	case <-timer.C:
		return 0, os.ErrDeadlineExceeded
	case <-l.closed:
		return 0, os.ErrClosed
	}
}

func (l *link) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *link) SetReadDeadline(t time.Time) error {
	l.deadline = t
	return nil
}

// truth is the right time in a bubble, whose own clock begins in 2000.
func truth() time.Time { return time.Now().AddDate(31, 0, 0) }

// newClock returns a clock for the servers, with defaults where o has none.
func newClock(t *testing.T, n servers, o Options) *Clock {
	t.Helper()
	if o.Servers == nil {
		o.Servers = []string{"a"}
	}
	o.Rand = rand.New(rand.NewPCG(1, 2)).Uint64
	c, err := New(n.dial, &o)
	require.NoError(t, err)
	return c
}
