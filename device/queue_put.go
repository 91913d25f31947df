package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// offer is a message on its way into the queue.
type offer struct {
	m       *transport.Message
	size    int
	receipt *Receipt
	call    bool
}

// put takes m or returns why not. tag and seq identify a taken message. If there was no room, room
// is the channel to wait on.
func (q *queue) put(o offer) (tag uint16, seq uint64, room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return 0, 0, nil, errClosed
	case o.call && q.halted != nil:
		return 0, 0, nil, q.halted
	}
	m, size, r := o.m, o.size, o.receipt
	if q.fullLocked(size) {
		switch q.overflow {
		case OverflowBlock:
			if q.room == nil {
				q.room = make(chan struct{})
			}
			return 0, 0, q.room, nil
		case OverflowFail:
			return 0, 0, nil, errFull
		case OverflowDropOldest:
			q.dropForLocked(size)
		case OverflowDropNewest:
		}
		if q.fullLocked(size) {
			q.totals.accepted++
			q.totals.dropped++
			if r != nil {
				r.set(errFull)
			}
			return 0, 0, nil, nil
		}
	}

	i := q.appendLocked(m, size, r, o.call)
	wake := q.inFlight < q.below
	if !m.Expires.IsZero() && (q.expiry.IsZero() || m.Expires.Before(q.expiry)) {
		q.expiry = m.Expires
		wake = true
		q.armSweepLocked()
	}
	if wake {
		q.below = 0
		q.poke()
	}
	return uint16(i), q.seq, nil, nil
}

// dropForLocked frees size bytes by dropping the oldest messages that are not in flight, if that
// can free enough.
func (q *queue) dropForLocked(size int) {
	inFlightBytes := 0
	for i, left := q.head, q.inFlight; left > 0; i = q.slots[i].next {
		if s := &q.slots[i]; s.state == slotInFlight {
			inFlightBytes += int(s.size)
			left--
		}
	}
	if q.inFlight >= q.maxMessages || size > q.maxBytes-inFlightBytes {
		return
	}
	for i := q.head; q.fullLocked(size); {
		next := q.slots[i].next
		if q.slots[i].state != slotInFlight {
			q.totals.dropped++
			q.removeLocked(i, q.outcomeLocked(i, errFull))
		}
		i = next
	}
}

// fullLocked reports whether a message of size does not fit.
func (q *queue) fullLocked(size int) bool {
	return q.count >= q.maxMessages || size > q.maxBytes-q.bytes
}

// stats returns the counters of messages.
func (q *queue) stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &q.totals
	return Stats{
		Accepted: t.accepted, Acknowledged: t.acknowledged, Refused: t.refused, Expired: t.expired,
		Dropped: t.dropped, Cancelled: t.cancelled, Resent: t.resent,
		Queued: q.count, QueuedBytes: q.bytes, InFlight: q.inFlight,
	}
}

// noteExpiryLocked brings the next check for expired messages forward to m's expiry.
func (q *queue) noteExpiryLocked(m *transport.Message) {
	if !m.Expires.IsZero() && (q.expiry.IsZero() || m.Expires.Before(q.expiry)) {
		q.expiry = m.Expires
	}
}

// expire ends all queued and refused messages that have expired, and returns when to call it again,
// zero for never.
func (q *queue) expire(wall time.Time) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.expireLocked(wall)
}

func (q *queue) expireLocked(wall time.Time) time.Time {
	if q.expiry.IsZero() || wall.Before(q.expiry) {
		return q.expiry
	}
	q.expiry = time.Time{}
	for i := q.head; i != none; {
		s := &q.slots[i]
		next := s.next
		if s.state != slotInFlight && !s.msg.Expires.IsZero() {
			if wall.Before(s.msg.Expires) {
				q.noteExpiryLocked(s.msg)
			} else {
				q.totals.expired++
				q.removeLocked(i, q.outcomeLocked(i, errExpired))
			}
		}
		i = next
	}
	return q.expiry
}

// armSweepLocked arms the timer that expires messages while no loop runs.
func (q *queue) armSweepLocked() {
	if q.halted == nil || q.closed || q.expiry.IsZero() {
		return
	}
	wait := max(0, q.expiry.Sub(q.wall()))
	if q.sweep == nil {
		q.sweep = time.AfterFunc(wait, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if q.halted != nil && !q.closed {
				q.expireLocked(q.wall())
				q.armSweepLocked()
			}
		})
		return
	}
	q.sweep.Reset(wait)
}

// flush returns a channel that gets nil when every message accepted so far has its result, or an
// error when the client stops trying before that. The channel is nil when there is nothing to wait
// for.
func (q *queue) flush() (done chan error, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.head == none:
	case q.halted != nil:
		err = q.halted
	default:
		done = make(chan error, 1)
		q.flushers = append(q.flushers, flusher{q.seq, done})
	}
	return done, err
}

// unflush removes a flusher whose caller gave up.
func (q *queue) unflush(done chan error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.flushers {
		if q.flushers[i].done == done {
			q.flushers = append(q.flushers[:i], q.flushers[i+1:]...)
			break
		}
	}
}

// halt refuses further calls of Send and ends the waiting ones; enqueued messages stay.
func (q *queue) halt(err *transport.Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.halted = err
	q.wakeBlockedLocked()
	q.armSweepLocked()
	for i := q.head; i != none; {
		next := q.slots[i].next
		if q.slots[i].call {
			q.totals.cancelled++
			q.removeLocked(i, q.outcomeLocked(i, err))
		}
		i = next
	}
	for _, f := range q.flushers {
		f.done <- err
	}
	q.flushers = nil
}

// whyHalted returns why Send is refused, nil if it is not.
func (q *queue) whyHalted() *transport.Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	why, _ := q.halted.(*transport.Error)
	if q.closed {
		why = errClosed
	}
	return why
}

// resume allows Send again.
func (q *queue) resume() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.halted = nil
	if q.sweep != nil {
		q.sweep.Stop()
	}
}

// shut refuses all further messages.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wakeBlockedLocked()
	if q.sweep != nil {
		q.sweep.Stop()
	}
}

// drain gives all remaining messages the result Closed. No loop may run.
func (q *queue) drain() {
	q.halt(errClosed)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head != none {
		q.totals.cancelled++
		q.removeLocked(q.head, q.outcomeLocked(q.head, errClosed))
	}
}

// withdrawal is the result of withdraw.
type withdrawal uint8

const (
	withdrawn withdrawal = iota // it left the queue; no hub has it
	unknown                     // it was handed over; it stays in the queue without receipt
	resolved                    // the receipt has its result
)

// withdraw takes back the message of a Send whose caller gives up.
func (q *queue) withdraw(tag uint16, seq uint64) withdrawal {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.slots[tag]
	switch {
	case s.state == slotFree || s.seq != seq:
		return resolved
	case s.state == slotInFlight || s.resent:
		s.receipt, s.call = nil, false
		return unknown
	}
	s.receipt = nil
	q.totals.cancelled++
	q.removeLocked(int32(tag), nil)
	return withdrawn
}
