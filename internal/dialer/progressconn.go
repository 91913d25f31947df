package dialer

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// sendBuffer is the size of the kernel's send buffer. Linux reports a socket as writable when a
	// third of the buffer is free. With the default of megabytes, a slow link takes longer than any
	// time-out to free that much, and later writes queue behind it.
	sendBuffer = 64 << 10
	// samplesPerTimeout is the number of checks of a blocked write per time-out.
	samplesPerTimeout = 5
	// maxReadOnly is the number of time-outs for which a peer that sends may accept no data. Its
	// kernel may announce no window before much of a large receive buffer is free.
	maxReadOnly = 6
)

// ProgressConn is a socket whose writes fail when the connection makes no progress, however long
// they take. It works below TLS, because a TLS connection cannot continue after a write time-out. A
// write makes progress when the socket takes bytes, when the peer's TCP acknowledges some (Linux),
// or, for at most six time-outs, when data arrives.
//
// It is timed for one writer and one reader, and is safe for concurrent use. Write deadlines are
// absolute: they also end a write that makes progress.
type ProgressConn struct {
	net.Conn
	timeout time.Duration
	unsent  func() (n int64, ok bool) // bytes not acknowledged by the peer's TCP; nil: unknown
	below   *ProgressConn             // a ProgressConn below this one, which does the work
	resumes bool                      // a write can continue after a time-out

	reads atomic.Uint64 // reads that returned data

	mu            sync.Mutex // guards the fields below; held for memory and non-blocking calls
	writeDeadline time.Time  // set by SetWriteDeadline
	written       int64      // bytes that the socket has taken
	progress      time.Time  // when waiting bytes last made progress
	sample        sample
}

// sample is one observation by Progress.
type sample struct {
	at             time.Time
	written, acked int64
}

// socket is implemented by *net.TCPConn and by in-memory connections in tests.
type socket interface {
	SetWriteBuffer(bytes int) error
}

// NewProgressConn returns c with this write time-out, and bounds its send buffer if possible. c may
// come from a caller's Dial. It may report unacknowledged bytes with a method Unsent; for a socket
// the kernel reports them. Only a socket is known to continue after a time-out; TLS cannot. For
// other types each Write has one time-out in total, unless they expose the socket below (NetConn)
// and that is a ProgressConn already.
func NewProgressConn(c net.Conn, timeout time.Duration) *ProgressConn {
	l := &ProgressConn{Conn: c, timeout: timeout}
	_, l.resumes = c.(socket)
	for c != nil {
		switch below := c.(type) {
		case *ProgressConn:
			below.timeout = timeout // nobody writes yet
			l.below = below
			return l
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			if s, ok := c.(socket); ok {
				_ = s.SetWriteBuffer(sendBuffer)
			}
			if u, ok := c.(interface{ Unsent() int64 }); ok {
				l.unsent = func() (int64, bool) { return u.Unsent(), true }
			} else {
				l.unsent = unsent(c)
			}
			return l
		}
	}
	return l
}

// Progress returns when waiting bytes on a socket last made progress, as transport.Progressor
// specifies. Call it every few seconds, because it samples the kernel.
func Progress(socket net.Conn) time.Time {
	if l, ok := socket.(*ProgressConn); ok {
		return l.Progress()
	}
	return time.Time{}
}

// Progress implements transport.Progressor.
func (l *ProgressConn) Progress() time.Time {
	if l.below != nil {
		return l.below.Progress()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsent == nil {
		return l.progress
	}
	if unsent, ok := l.unsent(); ok {
		before := l.sample
		l.sample = sample{time.Now(), l.written, l.written - unsent}
		// If some of the bytes that waited at the previous sample were acknowledged and others still
		// wait, the link is slow, not dead.
		if now := l.sample.acked; now > before.acked && now < before.written && before.at.After(l.progress) {
			l.progress = before.at
		}
	}
	return l.progress
}

// Read reads, and records that data arrived.
func (l *ProgressConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.reads.Add(1)
	}
	return n, err
}

// Write writes all of p, as long as the connection makes progress.
func (l *ProgressConn) Write(p []byte) (n int, err error) {
	if l.below != nil {
		return l.Conn.Write(p)
	}
	began := time.Now()
	step := l.timeout
	if l.resumes {
		step /= samplesPerTimeout
	}
	deadline := l.arm(began.Add(step))
	n, err = l.Conn.Write(p)
	l.addWritten(n)
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	// Progress is dated back to the previous sample, so that a dead connection is detected in time.
	last, since, taken := began, began, began // previous sample; last progress; the kernel's last progress
	acked, known := l.acked()
	reads, moved := l.reads.Load(), n > 0
	for now := time.Now(); !now.Before(deadline) && !l.expired(now); now = time.Now() {
		if moved {
			since, taken = last, last
			l.progressed(last)
		} else if h := l.reads.Load(); h != reads && now.Sub(taken) < maxReadOnly*l.timeout {
			since = last
			reads = h
		}
		if now.Sub(since) >= l.timeout {
			return n, err
		}
		last = now
		deadline = l.arm(earlier(now.Add(step), since.Add(l.timeout)))
		var more int
		more, err = l.Conn.Write(p[n:])
		n += more
		l.addWritten(more)
		moved = more > 0
		if err == nil {
			l.progressed(time.Now())
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if a, ok := l.acked(); known && ok && a != acked {
			acked, moved = a, true
		}
	}
	return n, err
}

// arm sets the deadline of the next attempt, or SetWriteDeadline's if that is earlier.
func (l *ProgressConn) arm(at time.Time) (deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.writeDeadline.IsZero() {
		at = earlier(at, l.writeDeadline)
	}
	_ = l.Conn.SetWriteDeadline(at)
	return at
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// expired reports whether the deadline of SetWriteDeadline has passed.
func (l *ProgressConn) expired(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.writeDeadline.IsZero() && !now.Before(l.writeDeadline)
}

// addWritten adds n bytes that the socket has taken.
func (l *ProgressConn) addWritten(n int) {
	l.mu.Lock()
	l.written += int64(n)
	l.mu.Unlock()
}

// progressed records progress of waiting bytes.
func (l *ProgressConn) progressed(at time.Time) {
	l.mu.Lock()
	if at.After(l.progress) {
		l.progress = at
	}
	l.mu.Unlock()
}

// acked returns the number of bytes that the peer's TCP has acknowledged.
func (l *ProgressConn) acked() (n int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsent == nil {
		return 0, false
	}
	unsent, ok := l.unsent()
	return l.written - unsent, ok
}

// SetWriteDeadline bounds all writes, including one in progress.
func (l *ProgressConn) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeDeadline = t
	if l.below == nil && t.IsZero() {
		return nil // a blocked write keeps its time-out
	}
	return l.Conn.SetWriteDeadline(t)
}

// SetDeadline sets both deadlines.
func (l *ProgressConn) SetDeadline(t time.Time) error {
	if err := l.SetWriteDeadline(t); err != nil {
		return err
	}
	return l.SetReadDeadline(t)
}
