package device

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// queue holds the accepted messages in a list, in order of acceptance. A message is queued until
// it is handed to a session, then in flight. It leaves the list, from any position, with its
// result. When a session ends, its messages in flight are queued again at their positions, so the
// order is kept.
//
//	           take              done(nil), done(terminal)
//	put -> queued --> in flight -----------------------------> result
//	          ^ ^       | |
//	          | +-------+ | done(retryable)
//	          |  rewind   v
//	          +------- refused --> result (fail)
//	            requeue
//
// It is a monitor: every method holds the lock for a few instructions and never blocks while it
// does.
type queue struct {
	poke func() // wakes the loop; does not block

	maxMessages, maxBytes int
	overflow              Overflow
	base                  time.Time // reference for the times in slots

	mu     sync.Mutex
	slots  []slot // grows up to maxMessages
	free   int32  // the longest free slot; none if no slot is free
	spare  int32  // the last of the free list, if there is one
	head   int32
	tail   int32
	cursor int32 // the first queued slot in the list

	count, bytes, inFlight, refused int

	window int // of the session; 0 without one
	// The loop waits for a message to hand over while fewer than this many are in flight; 0: it does
	// not wait.
	below    int
	draining bool // the loop waits until nothing is in flight
	seq      uint64
	expiry   time.Time // no queued or refused message expires earlier; zero: none expires
	halted   error     // why Send is refused; nil while the client is open
	closed   bool
	flushers []flusher
	// room is closed to make all callers that wait for room try again; nil without waiters. It wakes
	// all of them: waking one after the other would make a busy loop when no waiter's message fits.
	room chan struct{}

	wall  func() time.Time // the clock for expiry
	sweep *time.Timer      // expires messages while no loop runs; nil until needed

	progress time.Duration // when the oldest message was last answered, since base

	totals queueTotals

	outcomes, collected []outcome // for the loop; with the loop

	ids    messageid.Source     // generates ids for messages without one
	copies []*transport.Message // spare copies for messages with a generated id
}

const none int32 = -1

type slotState uint8

const (
	slotFree slotState = iota
	slotQueued
	slotInFlight
	slotRefused
)

type slot struct {
	msg        *transport.Message
	id         string             // the generated id; empty: the message has its own
	copied     *transport.Message // the copy with that id that the session has; nil unless in flight
	receipt    *Receipt
	refusal    *refusal // nil if it was never refused
	series     *series  // nil if the policy has no memory
	seq        uint64
	handed     time.Duration // when it was handed over, since base
	before     uint32        // acknowledged messages when it was handed over
	size       int32
	next, prev int32
	state      slotState
	resent     bool  // was in flight when a session ended: its outcome is unknown
	call       bool  // a Send waits for it
	lost       uint8 // connections lost while it was suspected or alone, 255 at most
}

func newQueue(s *settings, wall func() time.Time, poke func()) *queue {
	return &queue{
		poke: poke, wall: wall, maxMessages: s.MaxMessages, maxBytes: s.MaxBytes, overflow: s.Overflow, base: time.Now(),
		free: none, head: none, tail: none, cursor: none,
		halted: errNotOpen,
		ids:    messageid.NewSource(s.messageIDPrefix()),
	}
}

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

// wakeBlockedLocked makes all callers that wait for room try again.
func (q *queue) wakeBlockedLocked() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// outcomeLocked returns the result for a message that leaves the queue without an answer of the
// hub: err, marked as unknown outcome if the message was handed over.
func (q *queue) outcomeLocked(i int32, err *transport.Error) error {
	if s := &q.slots[i]; s.state == slotInFlight || s.resent {
		return operr.OutcomeUnknown(err)
	}
	return err
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
