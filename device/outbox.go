package device

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// outbox holds the accepted messages in a list, in order of acceptance. A message is queued until
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
// does. Unlocking in a defer would cost a board's program some 100 bytes each.
type outbox struct {
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

	totals outboxTotals

	outcomes []outcome // for the loop

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

func newOutbox(s *settings, wall func() time.Time, poke func()) *outbox {
	return &outbox{
		poke: poke, wall: wall, maxMessages: s.MaxMessages, maxBytes: s.MaxBytes, overflow: s.Overflow, base: time.Now(),
		free: none, head: none, tail: none, cursor: none,
		halted: errNotOpen,
		ids:    messageid.NewSource(s.messageIDPrefix()),
	}
}

// offer is a message on its way into the outbox.
type offer struct {
	m       *transport.Message
	size    int
	receipt *Receipt
	call    bool
}

// put takes m or returns why not. tag and seq identify a taken message. If there was no room, room
// is the channel to wait on.
func (b *outbox) put(o offer) (tag uint16, seq uint64, room <-chan struct{}, err error) {
	b.mu.Lock()
	tag, seq, room, err = b.putLocked(o)
	b.mu.Unlock()
	return tag, seq, room, err
}

func (b *outbox) putLocked(o offer) (tag uint16, seq uint64, room <-chan struct{}, err error) {
	switch {
	case b.closed:
		return 0, 0, nil, errClosed
	case o.call && b.halted != nil:
		return 0, 0, nil, b.halted
	}
	m, size, r := o.m, o.size, o.receipt
	if b.fullLocked(size) {
		switch b.overflow {
		case OverflowBlock:
			if b.room == nil {
				b.room = make(chan struct{})
			}
			return 0, 0, b.room, nil
		case OverflowFail:
			return 0, 0, nil, errFull
		case OverflowDropOldest:
			b.dropForLocked(size)
		case OverflowDropNewest:
		}
		if b.fullLocked(size) {
			b.totals.accepted++
			b.totals.dropped++
			if r != nil {
				r.set(errFull)
			}
			return 0, 0, nil, nil
		}
	}

	i := b.appendLocked(m, size, r, o.call)
	wake := b.inFlight < b.below
	if !m.Expires.IsZero() && (b.expiry.IsZero() || m.Expires.Before(b.expiry)) {
		b.expiry = m.Expires
		wake = true
		b.armSweepLocked()
	}
	if wake {
		b.below = 0
		b.poke()
	}
	return uint16(i), b.seq, nil, nil
}

// dropForLocked frees size bytes by dropping the oldest messages that are not in flight, if that
// can free enough.
func (b *outbox) dropForLocked(size int) {
	inFlightBytes := 0
	for i, left := b.head, b.inFlight; left > 0; i = b.slots[i].next {
		if s := &b.slots[i]; s.state == slotInFlight {
			inFlightBytes += int(s.size)
			left--
		}
	}
	if b.inFlight >= b.maxMessages || size > b.maxBytes-inFlightBytes {
		return
	}
	for i := b.head; b.fullLocked(size); {
		next := b.slots[i].next
		if b.slots[i].state != slotInFlight {
			b.totals.dropped++
			b.removeLocked(i, b.outcomeLocked(i, errFull))
		}
		i = next
	}
}

// fullLocked reports whether a message of size does not fit.
func (b *outbox) fullLocked(size int) bool {
	return b.count >= b.maxMessages || size > b.maxBytes-b.bytes
}

// wakeBlockedLocked makes all callers that wait for room try again.
func (b *outbox) wakeBlockedLocked() {
	if b.room != nil {
		close(b.room)
		b.room = nil
	}
}

// outcomeLocked returns the result for a message that leaves the outbox without an answer of the
// hub: err, marked as unknown outcome if the message was handed over.
func (b *outbox) outcomeLocked(i int32, err *transport.Error) error {
	if s := &b.slots[i]; s.state == slotInFlight || s.resent {
		return operr.OutcomeUnknown(err)
	}
	return err
}

// stats returns the counters of messages.
func (b *outbox) stats() Stats {
	b.mu.Lock()
	t := b.totals
	s := Stats{Queued: b.count, QueuedBytes: b.bytes, InFlight: b.inFlight}
	b.mu.Unlock()
	s.Accepted, s.Acknowledged, s.Refused, s.Expired = t.accepted, t.acknowledged, t.refused, t.expired
	s.Dropped, s.Cancelled, s.Resent = t.dropped, t.cancelled, t.resent
	return s
}
