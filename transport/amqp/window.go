package amqp

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/internal/times"
)

// window bounds the telemetry that a connection has in flight, shares it among the devices, and
// judges the progress of the connection for all of them.
//
// The bound follows the rate of the connection: the bytes in flight take about aimDelay to be sent.
// So a token or a link never waits long behind telemetry, and few bytes are lost when a device
// leaves. Waiting devices are admitted in the order of their requests.
//
// The peer receives the exchanges in the order of the list. While it answers earlier ones, a later
// one is not late, on any connection.
type window struct {
	conn   *amqpclient.Conn
	learnt *learnt
	limit  time.Duration // the longest silence while an answer is outstanding

	size atomic.Int64 // the bound in bytes; written with mu held

	mu          sync.Mutex    // guards the fields below; never held during I/O
	out         int           // bytes in flight
	first, last *exchange     // in flight, the oldest first
	waiting     []*exchange   // waiting for room, the next one first
	moved       time.Time     // when the peer last answered
	base        time.Duration // the shortest time of an answer; 0: no answer yet
	owed        time.Time     // when the peer began to owe an answer
	dropped     time.Time     // when an exchange last ended without an answer
	late        bool          // the answer to a transfer was late when it was dropped
	excused     bool          // the latest check for silence came so late that it did not count
	silence     *time.Timer   // ends a silent connection; nil before the first exchange
	watching    bool          // silence is set
	reclaim     *time.Timer   // reclaims unused places; nil before the first wait
	stopped     bool
}

// exchange is a request that the peer has to answer: a transfer of telemetry, a token, a link. Its
// fields are guarded by window.mu.
type exchange struct {
	owner   *telemetry // nil unless it is a transfer
	bytes   int
	since   time.Time // when it was admitted, and after the write when it was written
	passed  time.Time // when the peer first answered a later one; zero: not yet
	ahead   int       // bytes in flight when it was written, including its own
	listed  bool      // it is in the list: admitted, and not answered or dropped
	granted bool      // it was admitted
	sent    bool      // it was written
	steps   int       // round trips after the first one, at most

	prev, next *exchange
}

const (
	// aimDelay is how much longer than base the answer to a transfer takes when the window is full.
	aimDelay = 2 * time.Second
	// fullDelay is how much longer than base an answer takes when the window must shrink.
	fullDelay = 3 * time.Second
	// The window begins with firstWindow bytes, and has between leastWindow and mostWindow.
	firstWindow, leastWindow, mostWindow = 16 << 10, 4 << 10, 16 << 20
	// readTime is the time for reading what has arrived while the process was stopped.
	readTime = 2 * time.Second
	// reclaimAfter is when a transfer that waits for credit loses its place in the window.
	reclaimAfter = 500 * time.Millisecond
	// requestBytes is the approximate size of a token or an attach.
	requestBytes = 512
)

// errSilent ends the connection of a silent peer.
var errSilent = &timeoutError{"the hub is silent, and owes answers"}

// learnt is the state that a connection passes on to the next one: its first bound, firstWindow at
// most. The zero value is for a peer without an earlier connection.
type learnt struct{ size atomic.Int64 }

func newWindow(c *amqpclient.Conn, idleTimeout time.Duration, l *learnt) *window {
	w := &window{conn: c, learnt: l, limit: max(idleTimeout/2, min(idleTimeout, 10*time.Second))}
	w.size.Store(cmp.Or(l.size.Load(), firstWindow))
	return w
}

// batch returns how many bytes a batch may have: a part of the window.
func (w *window) batch() int { return min(int(w.size.Load())/4, batchBytes) }

// take returns whether x has a place in the window. If not, x waits for one, and its owner is
// called when it has it; take is called again then.
func (w *window) take(x *exchange, owner *telemetry, bytes int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case x.granted:
		return true
	case x.owner != nil || w.stopped:
		return false
	}
	*x = exchange{owner: owner, bytes: bytes}
	if len(w.waiting) == 0 && w.openLocked() {
		w.admitLocked(x, time.Now())
		return true
	}
	w.waiting = append(w.waiting, x)
	if len(w.waiting) == 1 {
		w.reclaimLaterLocked()
	}
	return false
}

// openLocked reports whether one more transfer is admitted, which may exceed the bound. mu is held.
func (w *window) openLocked() bool { return w.out < int(w.size.Load()) }

// admitLocked puts x at the end of the list. mu is held.
func (w *window) admitLocked(x *exchange, now time.Time) {
	if !w.owesLocked() {
		w.owed = now
	}
	w.out += x.bytes
	x.since, x.ahead, x.listed, x.granted = now, w.out, true, true
	if x.prev = w.last; x.prev != nil {
		x.prev.next = x
	} else {
		w.first = x
	}
	w.last = x
	if !w.watching && !w.stopped {
		w.watching = true
		if w.silence == nil {
			w.silence = time.AfterFunc(w.limit, w.checkSilence)
		} else {
			w.silence.Reset(w.limit)
		}
	}
}

// admitWaitingLocked admits waiting exchanges while there is room. mu is held.
func (w *window) admitWaitingLocked(now time.Time) {
	for len(w.waiting) > 0 && w.openLocked() {
		x := w.waiting[0]
		w.waiting = slices.Delete(w.waiting, 0, 1)
		w.admitLocked(x, now)
		w.conn.Soon(x.owner.wake)
	}
}

// removeLocked removes x from the list, and admits waiting exchanges. mu is held.
func (w *window) removeLocked(x *exchange, now time.Time) {
	if !x.listed {
		return
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		w.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		w.last = x.prev
	}
	x.prev, x.next, x.listed = nil, nil, false
	w.out -= x.bytes
	w.admitWaitingLocked(now)
}

// wrote records that x was written. If it had lost its place, it is in flight all the same.
func (w *window) wrote(x *exchange) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch x.sent = true; {
	case x.listed:
		x.since, x.ahead = now, w.out
	case !w.stopped:
		w.admitLocked(x, now)
	}
}

// ask begins an exchange that does not wait for room, because it is small.
func (w *window) ask(x *exchange) {
	*x = exchange{bytes: requestBytes, sent: true, steps: 3}
	w.mu.Lock()
	if !w.stopped {
		w.admitLocked(x, time.Now())
	}
	w.mu.Unlock()
}

// answered ends an exchange to which the peer's answer arrived.
func (w *window) answered(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !x.listed {
		return
	}
	now := time.Now()
	w.moved = now
	for p := x.prev; p != nil && p.passed.IsZero(); p = p.prev { // those before p were passed earlier
		p.passed = now
	}
	delay := max(now.Sub(x.since), 1)
	if w.base == 0 || delay < w.base {
		w.base = delay
	}
	if x.owner != nil {
		w.measureLocked(x, delay)
	}
	w.removeLocked(x, now)
}

// measureLocked adapts the window to the time that an answer took. mu is held.
func (w *window) measureLocked(x *exchange, delay time.Duration) {
	size := w.size.Load()
	want := int64(min(float64(x.ahead)*float64(w.base+aimDelay)/float64(delay), mostWindow))
	switch {
	case want > size:
		size = min(want, 2*size)
	case delay > w.base+fullDelay:
		size = max(want, leastWindow)
	}
	w.size.Store(size)
}

// drop ends an exchange without an answer, or its wait for a place.
func (w *window) drop(x *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !x.granted {
		w.waiting = slices.DeleteFunc(w.waiting, func(other *exchange) bool { return other == x })
	}
	w.dropLocked(x, time.Now())
}

// dropLocked is drop with mu held.
func (w *window) dropLocked(x *exchange, now time.Time) {
	if x.listed && x.sent {
		w.dropped = now
		w.noteLateLocked(x, now)
	}
	w.removeLocked(x, now)
}

// noteLateLocked records whether the answer to x, which is dropped, was late: the window is too
// large for the connection then. mu is held.
func (w *window) noteLateLocked(x *exchange, now time.Time) {
	w.late = w.late || x.owner != nil && now.Sub(w.progressLocked(x)) > w.base+fullDelay
}

// leave drops all exchanges of a device.
func (w *window) leave(owner *telemetry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.waiting = slices.DeleteFunc(w.waiting, func(x *exchange) bool { return x.owner == owner })
	for x := w.first; x != nil; {
		next := x.next
		if x.owner == owner {
			w.dropLocked(x, now)
		}
		x = next
	}
	w.admitWaitingLocked(now)
}

// progress returns the start of the wait for the answer to an exchange: when the peer last answered
// an earlier one, or first answered a later one.
func (w *window) progress(x *exchange) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.progressLocked(x)
}

// progressLocked is progress with mu held.
func (w *window) progressLocked(x *exchange) time.Time {
	if !x.passed.IsZero() {
		// Each further step of a request, such as begin, attach and transfer, takes as long again.
		return x.passed.Add(time.Duration(x.steps) * x.passed.Sub(x.since))
	}
	at, _ := w.conn.Progress()
	return times.Later(times.Later(x.since, w.moved), at)
}

// progressOf returns progress for the oldest transfer of a device. Without a transfer it returns
// when the network last made progress. waits is true if bytes wait on this side.
func (w *window) progressOf(owner *telemetry) (at time.Time, waits bool) {
	at, waits = w.conn.Progress()
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := w.first; x != nil; x = x.next {
		if x.owner == owner {
			return w.progressLocked(x), waits
		}
	}
	for _, x := range w.waiting {
		if x.owner == owner {
			return w.progressLocked(x), waits
		}
	}
	return at, waits
}

// checkSilence ends the connection when the peer is silent and owes an answer. The timer calls it.
func (w *window) checkSilence() {
	if w.silent() {
		w.conn.Fail(errSilent)
	}
}

// owesLocked reports whether the peer owes an answer, or has sent nothing since an exchange was
// dropped. mu is held.
func (w *window) owesLocked() bool {
	received := w.conn.Received()
	return w.first != nil || w.owed.After(received) || w.dropped.After(received)
}

// silent reports whether the peer was silent for longer than limit. If not, it sets the timer
// again.
func (w *window) silent() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watching = w.owesLocked() && !w.stopped; !w.watching {
		return false
	}
	at, _ := w.conn.Progress()
	left := w.limit - time.Since(times.Later(w.owed, times.Later(w.conn.Received(), at)))
	if left < -time.Second && !w.excused {
		// The process was stopped, by a signal or with its virtual machine: the answer may be in the
		// socket, and is read first.
		w.excused, left = true, readTime
	} else {
		w.excused = false
	}
	if w.watching = left > 0; w.watching {
		w.silence.Reset(left)
	}
	return !w.watching
}

// reclaimLaterLocked sets the timer of reclaimPlaces. mu is held.
func (w *window) reclaimLaterLocked() {
	if w.reclaim == nil {
		w.reclaim = time.AfterFunc(reclaimAfter, w.reclaimPlaces)
	} else {
		w.reclaim.Reset(reclaimAfter)
	}
}

// reclaimPlaces reclaims the places of transfers that wait for credit, or whose answers the peer
// withholds: one device must not block the others. The timer calls it.
func (w *window) reclaimPlaces() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || len(w.waiting) == 0 {
		return
	}
	now := time.Now()
	for x := w.first; x != nil; {
		next := x.next
		switch {
		case !x.sent && now.Sub(x.since) >= reclaimAfter:
			w.removeLocked(x, now)
		case !x.passed.IsZero() && now.Sub(x.passed) >= aimDelay: // the peer has it
			w.out -= x.bytes
			x.bytes = 0
		}
		x = next
	}
	w.admitWaitingLocked(now)
	w.probeLocked(now)
	if len(w.waiting) > 0 {
		w.reclaimLaterLocked()
	}
}

// probeLocked admits a transfer of a device that has none in flight when there is no room, and the
// peer has answered nothing for longer than what is in flight takes although all is sent. Its
// answer shows that the peer has what was sent before. mu is held.
func (w *window) probeLocked(now time.Time) {
	takes := w.base + max(fullDelay, time.Duration(float64(aimDelay)*float64(w.out)/float64(w.size.Load())))
	if w.last == nil || now.Sub(w.progressLocked(w.last)) < takes || w.conn.Pending() > 0 {
		return
	}
	if _, waits := w.conn.Progress(); waits {
		return
	}
	i := slices.IndexFunc(w.waiting, func(other *exchange) bool {
		for x := w.first; x != nil; x = x.next {
			if x.owner == other.owner {
				return false
			}
		}
		return true
	})
	if i >= 0 {
		x := w.waiting[i]
		w.waiting = slices.Delete(w.waiting, i, i+1)
		w.admitLocked(x, now)
		w.conn.Soon(x.owner.wake)
	}
}

// stop ends the timers, and stores the bound for the next connection.
func (w *window) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first != nil {
		w.noteLateLocked(w.first, time.Now())
	}
	if size := min(w.size.Load(), firstWindow); !w.stopped && w.late {
		w.learnt.size.Store(max(size/2, leastWindow))
	} else if !w.stopped {
		w.learnt.size.Store(size)
	}
	w.stopped = true
	for _, t := range []*time.Timer{w.silence, w.reclaim} {
		if t != nil {
			t.Stop()
		}
	}
}
