package memconn

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// DefaultBuffer is the number of bytes that each direction of a connection buffers before a writer
	// waits.
	DefaultBuffer = 64 << 10

	// segmentSize bounds how many bytes writes gather in one segment. Otherwise a reader that never
	// quite catches up would let the first segment grow without limit.
	segmentSize = 32 << 10

	// packetSize is the number of bytes that arrive together if a rate is set.
	packetSize = 1 << 10
)

// A segment is a run of bytes that is delivered as a whole, or the end of the stream.
type segment struct {
	buf []byte
	off int       // bytes of buf that were read
	at  time.Time // not readable before; zero = at once
	eof bool      // no bytes, and none will follow
}

// A half is one direction of a connection: one end writes to it, the other one reads from it. It is
// a queue, so a segment with a short delay still arrives after the previous one, and the end of the
// stream last.
type half struct {
	mu sync.Mutex // guards memory only, never held during a wait
	r  sync.Cond  // readers wait: bytes, end, deadline
	w  sync.Cond  // writers wait: room, their turn, deadline

	// The queue.
	segs  []segment
	first int    // index of the oldest segment in segs
	size  int    // bytes in segs
	spare []byte // buffer of a drained segment, for the next one

	// Settings.
	limit   int // bytes, 0 = no limit
	window  int // bytes of the reader's buffer, 0 = part of limit
	step    int // free bytes of it that open a closed window
	held    bool
	latency func() time.Duration
	rate    int // bytes per second, 0 = no limit

	// State.
	taken    int       // bytes of the queue that are in the reader's buffer, with a window
	shut     bool      // the window is closed
	answered time.Time // while held: the last answer to a probe of a closed window
	busy     time.Time // end of the transmission of earlier writes, with a rate
	writing  bool      // a Write is in progress; others queue up behind it so that writes do not mix
	ended    bool      // the writer has sent its end of stream
	consumed bool      // the reader has received the end of stream, and receives it again
	wclosed  bool      // the writing end was closed
	rclosed  bool      // the reading end was closed
	broken   bool      // reset

	// Timers.
	rline   deadline
	wline   deadline
	arrival *time.Timer // wakes the readers when the head of the queue arrives
}

func newHalf() *half {
	h := &half{limit: DefaultBuffer}
	h.r.L, h.w.L = &h.mu, &h.mu
	h.rline.wake, h.wline.wake = &h.r, &h.w
	return h
}

// read takes bytes off the queue and waits for the first one. Errors are unwrapped; Conn.dress
// wraps them.
func (h *half) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.rclosed:
			return 0, net.ErrClosed
		case h.broken:
			return 0, os.NewSyscallError("read", syscall.ECONNRESET)
		case h.rline.passed():
			return 0, os.ErrDeadlineExceeded
		case h.consumed:
			return 0, io.EOF
		}
		if wait, ok := h.dueLocked(); ok && wait <= 0 {
			return h.takeLocked(p)
		} else if ok {
			h.armLocked(wait)
		}
		h.r.Wait()
	}
}

// dueLocked returns how long until the head of the queue arrives; false if nothing will arrive.
func (h *half) dueLocked() (time.Duration, bool) {
	if h.held || h.first == len(h.segs) {
		return 0, false
	}
	if at := h.segs[h.first].at; !at.IsZero() {
		return time.Until(at), true
	}
	return 0, true
}

// armLocked sets the timer that wakes the readers after wait.
func (h *half) armLocked(wait time.Duration) {
	if h.arrival == nil {
		h.arrival = time.AfterFunc(wait, func() {
			h.mu.Lock()
			h.r.Broadcast()
			h.mu.Unlock()
		})
		return
	}
	h.arrival.Reset(wait)
}

func (h *half) takeLocked(p []byte) (int, error) {
	if h.segs[h.first].eof {
		h.consumed = true
		return 0, io.EOF
	}
	if h.window > 0 {
		p = p[:min(len(p), h.taken)]
	}
	n := 0
	for n < len(p) && h.first < len(h.segs) {
		s := &h.segs[h.first]
		if s.eof || n > 0 && !s.at.IsZero() && time.Until(s.at) > 0 {
			break
		}
		k := copy(p[n:], s.buf[s.off:])
		n += k
		s.off += k
		if s.off == len(s.buf) {
			h.popLocked()
		}
	}
	h.size -= n
	h.taken = max(0, h.taken-n)
	h.admitLocked()
	h.w.Broadcast()
	return n, nil
}

// admitLocked moves bytes into the reader's buffer, unless the window is closed.
func (h *half) admitLocked() {
	if h.shut && h.window-h.taken < h.step {
		return
	}
	h.taken = min(h.size, h.window)
	h.shut = h.window > 0 && h.taken == h.window
}

func (h *half) popLocked() {
	if h.spare = h.segs[h.first].buf[:0]; cap(h.spare) > 2*segmentSize {
		h.spare = nil // do not keep the memory of one large write
	}
	h.segs[h.first] = segment{}
	h.first++
	switch {
	case h.first == len(h.segs):
		h.segs, h.first = h.segs[:0], 0
	case h.first >= 64 && h.first >= len(h.segs)/2:
		n := copy(h.segs, h.segs[h.first:])
		clear(h.segs[n:])
		h.segs, h.first = h.segs[:n], 0
	}
}

// write queues all of p and waits for room if there is a limit. Errors are unwrapped.
func (h *half) write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if err := h.writableLocked(); err != nil {
			return 0, err
		}
		if !h.writing {
			break
		}
		h.w.Wait()
	}
	h.writing = true
	defer func() {
		h.writing = false
		h.w.Broadcast()
	}()

	var at time.Time
	var delay time.Duration
	if latency := h.latency; latency != nil {
		h.mu.Unlock() // callbacks run without the lock
		delay = latency()
		h.mu.Lock()
		at = time.Now().Add(delay)
	}
	for {
		if err := h.writableLocked(); err != nil {
			return n, err
		}
		if n == len(p) {
			return n, nil
		}
		k := len(p) - n
		if h.limit > 0 {
			k = min(k, h.limit-(h.size-h.taken))
		}
		if k > 0 && h.rate > 0 {
			k = min(k, packetSize)
			at = h.sentLocked(k).Add(delay)
		}
		if k > 0 {
			h.queueLocked(p[n:n+k], at)
			n += k
			continue
		}
		h.w.Wait()
	}
}

// sentLocked returns when the next n bytes have been sent at the rate, after all earlier ones.
func (h *half) sentLocked(n int) time.Time {
	if now := time.Now(); h.busy.Before(now) {
		h.busy = now
	}
	h.busy = h.busy.Add(time.Duration(n) * time.Second / time.Duration(h.rate))
	return h.busy
}

func (h *half) writableLocked() error {
	switch {
	case h.wclosed:
		return net.ErrClosed
	case h.broken:
		return os.NewSyscallError("write", syscall.ECONNRESET)
	case h.wline.passed():
		return os.ErrDeadlineExceeded
	case h.ended, h.rclosed && !h.held: // a held link hides that the peer has closed
		return os.NewSyscallError("write", syscall.EPIPE)
	}
	return nil
}

// queueLocked copies p to the end of the queue.
func (h *half) queueLocked(p []byte, at time.Time) {
	if h.rclosed {
		return // the link is held, and the reader has closed
	}
	if !at.IsZero() && time.Until(at) <= 0 {
		at = time.Time{}
	}
	h.size += len(p)
	h.admitLocked()
	if k := len(h.segs); k > h.first {
		if s := &h.segs[k-1]; !s.eof && s.at.Equal(at) && len(s.buf)+len(p) <= segmentSize {
			s.buf = append(s.buf, p...)
			h.r.Broadcast()
			return
		}
	}
	h.segs = append(h.segs, segment{buf: append(h.spare, p...), at: at})
	h.spare = nil
	h.r.Broadcast()
}

// end queues the end of the stream, behind all bytes.
func (h *half) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endLocked()
}

func (h *half) endLocked() {
	if h.ended || h.broken {
		return
	}
	h.ended = true
	h.segs = append(h.segs, segment{eof: true})
	h.r.Broadcast()
	h.w.Broadcast()
}

// closeWriter ends the stream; it returns false if that was done before.
func (h *half) closeWriter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wclosed {
		return false
	}
	h.endLocked()
	h.wclosed = true
	h.wline.stop()
	h.w.Broadcast()
	return true
}

// closeReader drops queued data and fails the reader, and the writer unless the link is held.
func (h *half) closeReader() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rclosed = true
	h.rline.stop()
	h.dropLocked()
	h.r.Broadcast()
	h.w.Broadcast()
}

func (h *half) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = true
	h.dropLocked()
	h.r.Broadcast()
	h.w.Broadcast()
}

func (h *half) dropLocked() {
	h.segs, h.first, h.size, h.taken, h.spare = nil, 0, 0, 0, nil
	if h.arrival != nil {
		h.arrival.Stop()
	}
}

func (h *half) setReadDeadline(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rclosed {
		return net.ErrClosed
	}
	h.rline.set(t)
	h.r.Broadcast()
	return nil
}

func (h *half) setWriteDeadline(t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wclosed {
		return net.ErrClosed
	}
	h.wline.set(t)
	h.w.Broadcast()
	return nil
}

func (h *half) setHeld(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on && !h.held {
		_, h.answered = h.queueStateLocked()
	}
	h.held = on
	h.r.Broadcast()
	h.w.Broadcast()
}

func (h *half) setLimit(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit = max(n, 0)
	h.w.Broadcast()
}

func (h *half) setWindow(buffer, step int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.window, h.step = buffer, step
	h.admitLocked()
}

// sendQueue is Conn.SendQueue.
func (h *half) sendQueue() (unsent int64, answered time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.queueStateLocked()
}

func (h *half) queueStateLocked() (unsent int64, answered time.Time) {
	for _, s := range h.segs[h.first:] {
		if h.held || !s.at.IsZero() && time.Until(s.at) > 0 {
			unsent += int64(len(s.buf) - s.off)
		}
	}
	switch {
	case h.held:
		return unsent, h.answered
	case h.window > 0:
		unsent = max(unsent, int64(h.size-h.taken))
		if h.shut {
			answered = time.Now()
		}
	case unsent == 0 && h.limit > 0 && h.size >= h.limit:
		answered = time.Now()
	}
	return unsent, answered
}

func (h *half) setLatency(f func() time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latency = f
}

func (h *half) setRate(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rate = max(n, 0)
}
