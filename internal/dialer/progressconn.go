package dialer

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/times"
)

const (
	// sendBuffer is the size of the kernel's send buffer at first. Linux reports a socket as writable
	// when a third of the buffer is free. With the default of megabytes, a slow link takes longer than
	// any time-out to free that much, and later writes queue behind it. But large messages on a fast
	// link wait for the reader's wake-ups then: over TLS they take 1.6 times the CPU time. So the
	// buffer doubles, up to maxSendBuffer, whenever the socket took buffersPerGrowth of it within
	// growthTime. It holds what such a link carries in a fifth of a second at most. Where the system
	// does not tell what is unsent, and around a socket of others, it stays: a socket that has to
	// shrink takes nothing for long.
	sendBuffer, maxSendBuffer = 64 << 10, 1 << 20
	buffersPerGrowth          = 4
	growthTime                = 400 * time.Millisecond
	// samplesPerTimeout is the number of checks of a blocked write per time-out.
	samplesPerTimeout = 5
	// maxFull is the number of time-outs for which a peer that shows life may accept no data. Its
	// kernel may announce no window before much of a large receive buffer is free.
	maxFull = 6
	// maxUnheard is the number of time-outs since the latest answer to a probe of a closed window.
	// Each probe comes twice as long after the one before.
	maxUnheard = 3
)

// ProgressConn is a socket whose writes fail when the connection makes no progress, however long
// they take. It works below TLS, because a TLS connection cannot continue after a write time-out. A
// write makes progress when the socket takes bytes or the peer's TCP acknowledges some (Linux). A
// peer that shows that it lives may take nothing for six time-outs: while data arrives, or while
// its TCP has answered a probe of its closed window within three (Linux). Where the system does not
// tell, a write has three time-outs from its latest progress.
//
// It is timed for one writer and one reader, and is safe for concurrent use. Write deadlines are
// absolute: they also end a write that makes progress.
type ProgressConn struct {
	net.Conn
	timeout time.Duration // 0: none
	queue   sendQueue     // nil: unknown
	below   *ProgressConn // a ProgressConn below this one, which does the work
	resumes bool          // a write can continue after a time-out
	socket  socket        // nil: unknown

	reads atomic.Uint64 // reads that returned data

	mu            sync.Mutex // guards the fields below; held for memory and non-blocking calls
	gathered      *gathered  // nil: records are written at once
	writeDeadline time.Time  // set by SetWriteDeadline
	written       int64      // bytes that the socket has taken
	buffer        int        // the size of its send buffer
	counted       int64      // written, when the latest buffersPerGrowth began to be counted
	countedAt     time.Time
	progress      time.Time // when waiting bytes last made progress
	moved         time.Time // when the peer last took some, or they began to wait, as Progress saw it
	sample        sample
}

// sendQueue returns how many bytes the peer's TCP has not acknowledged. If none of them is on its
// way because the peer's window is closed, it also returns when the peer last answered.
type sendQueue func() (unsent int64, answered time.Time, ok bool)

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
// come from a caller's Dial. It may have a method SendQueue; for a socket the kernel reports its
// state. Only a socket is known to continue after a time-out; TLS cannot. For other types each
// Write has one time-out in total, unless they expose the socket below (NetConn) and that is a
// ProgressConn already: one without a time-out, 0, waits for that of the upper one.
func NewProgressConn(c net.Conn, timeout time.Duration) *ProgressConn {
	l := &ProgressConn{Conn: c, timeout: timeout, buffer: sendBuffer}
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
			if l.socket, _ = c.(socket); l.socket != nil {
				_ = l.socket.SetWriteBuffer(sendBuffer)
			}
			if q, ok := c.(interface{ SendQueue() (int64, time.Time) }); ok {
				l.queue = func() (int64, time.Time, bool) { unsent, answered := q.SendQueue(); return unsent, answered, true }
			} else {
				l.queue = kernelQueue(c)
			}
			return l
		}
	}
	return l
}

// NetConn returns the connection below, as *tls.Conn does.
func (l *ProgressConn) NetConn() net.Conn { return l.Conn }

// Progress returns when waiting bytes on a socket last made progress, as transport.Progressor
// specifies. Call it every few seconds, because it samples the kernel.
func Progress(socket net.Conn) (at time.Time, waits bool) {
	if l, ok := socket.(*ProgressConn); ok {
		return l.Progress()
	}
	return time.Time{}, false
}

// Progress implements transport.Progressor.
func (l *ProgressConn) Progress() (at time.Time, waits bool) {
	if l.below != nil {
		return l.below.Progress()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue == nil {
		return l.progress, false
	}
	unsent, answered, ok := l.queue()
	if !ok {
		return l.progress, false
	}
	before, now := l.sample, time.Now()
	l.sample = sample{now, l.written, l.written - unsent}
	switch acked := l.sample.acked; {
	case acked > before.acked:
		l.moved = now
		// If some of the bytes that waited at the previous sample were acknowledged and others still
		// wait, the link is slow, not dead.
		if acked < before.written {
			l.progressedLocked(before.at)
		}
	case now.Sub(l.moved) < maxFull*l.timeout:
		l.progressedLocked(answered)
	}
	return l.progress, unsent > 0 && now.Sub(l.moved) >= l.timeout
}

// Read reads, and records that data arrived.
func (l *ProgressConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 {
		l.reads.Add(1)
	}
	return n, err
}

// write is Write without gathering.
func (l *ProgressConn) write(p []byte) (n int, err error) {
	if l.below != nil || l.timeout == 0 {
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
	if !l.resumes || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	s := l.stalled(began)
	for now := time.Now(); !now.Before(deadline) && !l.expired(now); now = time.Now() {
		until := s.until(now, n)
		if !now.Before(until) {
			return n, err
		}
		deadline = l.arm(times.Earlier(now.Add(step), until))
		var more int
		more, err = l.Conn.Write(p[n:])
		n += more
		l.addWritten(more)
		if err == nil {
			l.progressed(time.Now())
			return n, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	return n, err
}

// stall watches a write that waits. Progress is dated back to the previous look, so that a dead
// connection is detected in time.
type stall struct {
	l        *ProgressConn
	n        int       // bytes of the write that the socket had taken
	acked    int64     // bytes that the peer's TCP had acknowledged
	reads    uint64    // l.reads
	last     time.Time // the previous look
	took     time.Time // when the peer last took bytes
	patience time.Time // how long the write may wait
}

// stalled begins to watch a write.
func (l *ProgressConn) stalled(began time.Time) *stall {
	s := &stall{l: l, last: began, took: began, reads: l.reads.Load()}
	s.acked, _, _ = l.state()
	s.patience = began.Add(l.silence())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.resizeLocked(sendBuffer)
	return s
}

// silence is how long a write may wait without a sign of the peer.
func (l *ProgressConn) silence() time.Duration {
	if l.queue == nil {
		return maxUnheard * l.timeout
	}
	return l.timeout
}

// until looks at the connection and returns how long the write may wait, given that n of its bytes
// are taken.
func (s *stall) until(now time.Time, n int) time.Time {
	l := s.l
	acked, answered, known := l.state()
	reads := l.reads.Load()
	if reads != s.reads {
		s.patience = times.Later(s.patience, s.last.Add(l.silence()))
	}
	if !answered.IsZero() {
		s.patience = times.Later(s.patience, answered.Add(maxUnheard*l.timeout))
	}
	if n > s.n || known && acked != s.acked {
		s.took, s.patience = s.last, s.last.Add(l.silence())
		l.progressed(s.last)
	}
	s.n, s.acked, s.reads, s.last = n, acked, reads, now
	return times.Earlier(s.patience, s.took.Add(maxFull*l.timeout))
}

// arm sets the deadline of the next attempt, or SetWriteDeadline's if that is earlier.
func (l *ProgressConn) arm(at time.Time) (deadline time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.writeDeadline.IsZero() {
		at = times.Earlier(at, l.writeDeadline)
	}
	_ = l.Conn.SetWriteDeadline(at)
	return at
}

// expired reports whether the deadline of SetWriteDeadline has passed.
func (l *ProgressConn) expired(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.writeDeadline.IsZero() && !now.Before(l.writeDeadline)
}

// addWritten adds n bytes that the socket has taken.
func (l *ProgressConn) addWritten(n int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sample.acked == l.written { // all that the latest sample saw was acknowledged
		l.moved = now
	}
	l.written += int64(n)
	if l.queue == nil || !l.resumes || l.written-l.counted < int64(buffersPerGrowth*l.buffer) {
		return
	}
	if now.Sub(l.countedAt) <= growthTime {
		l.resizeLocked(min(2*l.buffer, maxSendBuffer))
	}
	l.counted, l.countedAt = l.written, now
}

// resizeLocked sets the size of the send buffer. Bytes that are in it stay there.
func (l *ProgressConn) resizeLocked(size int) {
	if l.socket != nil && size != l.buffer {
		_ = l.socket.SetWriteBuffer(size)
		l.buffer = size
	}
}

// progressed records progress of waiting bytes.
func (l *ProgressConn) progressed(at time.Time) {
	l.mu.Lock()
	l.progressedLocked(at)
	l.mu.Unlock()
}

func (l *ProgressConn) progressedLocked(at time.Time) { l.progress = times.Later(l.progress, at) }

// state returns the number of bytes that the peer's TCP has acknowledged, and when it last answered
// a probe of its closed window.
func (l *ProgressConn) state() (acked int64, answered time.Time, ok bool) {
	if l.queue == nil {
		return 0, time.Time{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	unsent, answered, ok := l.queue()
	return l.written - unsent, answered, ok
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
