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
	// sendBuffer is the size of the kernel's send buffer. Linux calls a socket writable when a third
	// of its buffer is free; the megabytes that it allows by default take a slow link longer than any
	// time-out, and hold up what is written behind them.
	sendBuffer = 64 << 10
	// looks is how often in its time-out a write that waits is looked at.
	looks = 5
	// maxHeard is for how many time-outs a peer may take nothing while something comes from it. Its
	// kernel may announce no room before much of a large receive buffer is free.
	maxHeard = 6
)

// ProgressConn is a socket whose writes end when the connection does not get on, however long they
// take. It does not matter what lies above it: a TLS connection could not go on after a time-out of
// its own. A write gets on when the socket takes bytes, when the peer's TCP acknowledges some
// (Linux), or, for six time-outs at most, when something comes.
//
// It has the timing of one writer and one reader, and is safe for concurrent use. Deadlines for
// writing are absolute: they end a write that gets on as well.
type ProgressConn struct {
	net.Conn
	timeout time.Duration
	unsent  func() (n int64, ok bool) // bytes that the peer's TCP has not acknowledged; nil: not known
	below   *ProgressConn             // a ProgressConn that this one was dialed over; it does the work
	resumes bool                      // a write can go on after a time-out

	heard atomic.Uint64 // reads that brought something

	mu       sync.Mutex // guards what follows; held for memory and for calls that do not block
	end      time.Time  // of SetWriteDeadline
	written  int64      // bytes that the socket has taken
	progress time.Time  // when the line last got on with bytes that had waited
	look     look
}

// look is what Progress saw.
type look struct {
	at             time.Time
	written, acked int64
}

// socket is what a *net.TCPConn has, and a connection in memory for tests.
type socket interface {
	SetWriteBuffer(bytes int) error
}

// NewProgressConn returns c with the time-out for its writes, and bounds its send buffer if it can.
// c may be what a function of the user's has dialed. It may tell by a method Unsent how many bytes
// have not arrived; of a socket the kernel tells. Only a socket can go on after a time-out: TLS
// cannot, and of other types it is not known. For these each Write has one time-out in all, unless
// they tell the socket below (NetConn) and that is a ProgressConn already.
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

// Progress returns when the connection of a socket last got on with bytes that had waited, as
// transport.Progressor has it. It must be called every few seconds to see what the kernel does.
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
		before := l.look
		l.look = look{time.Now(), l.written, l.written - unsent}
		// Some of what had waited at the look before was acknowledged, and some has waited since: the
		// link is slow.
		if now := l.look.acked; now > before.acked && now < before.written && before.at.After(l.progress) {
			l.progress = before.at
		}
	}
	return l.progress
}

// Read reads, and notes that something came.
func (l *ProgressConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.heard.Add(1)
	}
	return n, err
}

// Write writes all of p, for as long as the connection gets on.
func (l *ProgressConn) Write(p []byte) (n int, err error) {
	if l.below != nil {
		return l.Conn.Write(p)
	}
	began := time.Now()
	step := l.timeout
	if l.resumes {
		step /= looks
	}
	deadline := l.arm(began.Add(step))
	n, err = l.Conn.Write(p)
	l.took(n)
	if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	// Progress is dated back to the look before it, so that a dead line is found in time.
	last, since, taken := began, began, began // the look before; when the line, and when the kernel, last got on
	acked, known := l.acked()
	heard, moved := l.heard.Load(), n > 0
	for now := time.Now(); !now.Before(deadline) && !l.over(now); now = time.Now() {
		if moved {
			since, taken = last, last
			l.gotOn(last)
		} else if h := l.heard.Load(); h != heard && now.Sub(taken) < maxHeard*l.timeout {
			since = last
			heard = h
		}
		if now.Sub(since) >= l.timeout {
			return n, err
		}
		last = now
		deadline = l.arm(earlier(now.Add(step), since.Add(l.timeout)))
		var more int
		more, err = l.Conn.Write(p[n:])
		n += more
		l.took(more)
		moved = more > 0
		if err == nil {
			l.gotOn(time.Now())
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

// arm sets the deadline of the next try, SetWriteDeadline's if that is earlier.
func (l *ProgressConn) arm(at time.Time) (deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.end.IsZero() {
		at = earlier(at, l.end)
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

// over reports whether the deadline of SetWriteDeadline has passed.
func (l *ProgressConn) over(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.end.IsZero() && !now.Before(l.end)
}

// took counts bytes that the socket has taken.
func (l *ProgressConn) took(n int) {
	l.mu.Lock()
	l.written += int64(n)
	l.mu.Unlock()
}

// gotOn notes that bytes which had waited were taken.
func (l *ProgressConn) gotOn(at time.Time) {
	l.mu.Lock()
	if at.After(l.progress) {
		l.progress = at
	}
	l.mu.Unlock()
}

// acked returns how many bytes the peer's TCP has acknowledged.
func (l *ProgressConn) acked() (n int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unsent == nil {
		return 0, false
	}
	unsent, ok := l.unsent()
	return l.written - unsent, ok
}

// SetWriteDeadline bounds all writes, also one that waits.
func (l *ProgressConn) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = t
	if l.below == nil && t.IsZero() {
		return nil // a write that waits has its time-out
	}
	return l.Conn.SetWriteDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (l *ProgressConn) SetDeadline(t time.Time) error {
	if err := l.SetWriteDeadline(t); err != nil {
		return err
	}
	return l.SetReadDeadline(t)
}
