package device

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
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

	totals Stats // the counters of messages

	watched  bool  // the policy is an Observer
	watch    uint8 // identifies the policy that watches
	outcomes []outcome

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
	seq        uint64
	handed     time.Duration // when it was handed over, since base
	size       int32
	next, prev int32
	state      slotState
	again      bool // was in flight when a session ended: its outcome is unknown
	call       bool // a Send waits for it
	watch      uint8
}

// refusal is the history of a message that the service refused, as the policy needs it.
type refusal struct {
	err   *transport.Error
	count int
	since time.Time
	last  retrypolicy.Decision
	by    *policies // the policies behind last, until the retry begins
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
		case Block:
			if b.room == nil {
				b.room = make(chan struct{})
			}
			return 0, 0, b.room, nil
		case Fail:
			return 0, 0, nil, errFull
		case DropOldest:
			b.dropForLocked(size)
		case DropNewest:
		}
		if b.fullLocked(size) {
			b.totals.Accepted++
			b.totals.Dropped++
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
			b.totals.Dropped++
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

// batchSize is the maximum number of messages that take returns.
const batchSize = 64

// take marks queued messages as in flight, up to the window and batchSize, and appends them to
// batch, which is empty. If it returns none, the loop will be poked: for the next message, or, if
// the window is full, once an eighth of it is free. So messages go in batches although answers come
// one by one. A larger share would leave the line idle with a small window.
func (b *outbox) take(batch []transport.Item, now, wall time.Time) []transport.Item {
	handed := now.Sub(b.base)
	b.mu.Lock()
	for len(batch) < batchSize && b.cursor != none && b.inFlight < b.window {
		i := b.cursor
		s := &b.slots[i]
		if !s.msg.Expires.IsZero() && !wall.Before(s.msg.Expires) {
			b.totals.Expired++
			b.removeLocked(i, b.outcomeLocked(i, errExpired))
			continue
		}
		batch = append(batch, transport.Item{Tag: uint16(i), Again: s.again, Msg: b.withIDLocked(s)})
		if s.again || s.refusal != nil {
			b.totals.Resent++
		}
		s.state, s.handed, s.watch = slotInFlight, handed, b.watch
		b.inFlight++
		b.cursor = b.nextQueuedLocked(s.next)
	}
	switch {
	case len(batch) > 0:
		b.below = 0
	case b.inFlight < b.window:
		b.below = b.window
	default:
		b.below = b.window - max(1, b.window/8) + 1
	}
	b.mu.Unlock()
	return batch
}

// done takes the answer to a message in flight. It ignores tags of other messages.
func (b *outbox) done(tag uint16, err error) {
	b.mu.Lock()
	b.doneLocked(tag, err)
	b.mu.Unlock()
}

func (b *outbox) doneLocked(tag uint16, err error) {
	i := int32(tag)
	if int(i) >= len(b.slots) || b.slots[i].state != slotInFlight {
		return
	}
	wake := false
	if i == b.firstInFlightLocked() {
		b.progress = time.Since(b.base)
	}
	failure := transport.Find(err)
	if failure == nil && err != nil {
		failure = &transport.Error{Kind: transport.KindOf(err), Op: transport.OpSend, Err: err}
	}
	s := &b.slots[i]
	b.noteLocked(s, failure)
	switch {
	case err == nil:
		b.totals.Acknowledged++
		b.removeLocked(i, nil)
	case errfilter.Retryable(err):
		if s.refusal == nil {
			s.refusal = &refusal{since: time.Now()}
		}
		s.refusal.count++
		s.refusal.by = nil
		s.again = s.again || errchain.Has(err, transport.ErrOutcomeUnknown)
		s.refusal.err = failure
		s.state = slotRefused
		b.returnCopyLocked(s)
		b.inFlight--
		b.refused++
		b.noteExpiryLocked(s.msg)
		wake = true
	default:
		b.totals.Refused++
		if s.again { // the refusal of this try does not cover the previous one
			err = operr.OutcomeUnknown(failure)
		}
		b.removeLocked(i, err)
	}
	if wake || b.cursor != none && b.inFlight < b.below {
		b.below = 0
		b.poke()
	}
	if b.draining && b.inFlight == 0 {
		b.poke()
	}
}

// firstInFlightLocked returns the first message in flight in order of acceptance; there is one.
func (b *outbox) firstInFlightLocked() int32 {
	i := b.head
	for b.slots[i].state != slotInFlight {
		i = b.slots[i].next
	}
	return i
}

// idle reports whether nothing is in flight. After a call the loop is poked when that becomes true,
// until the session ends.
func (b *outbox) idle() bool {
	b.mu.Lock()
	b.draining = true
	idle := b.inFlight == 0
	b.mu.Unlock()
	return idle
}

// oldestRefused returns the first refused message in order of acceptance.
func (b *outbox) oldestRefused() (tag uint16, seq uint64, r refusal, ok bool) {
	b.mu.Lock()
	if ok = b.refused > 0; ok {
		i := b.head
		for b.slots[i].state != slotRefused {
			i = b.slots[i].next
		}
		tag, seq, r = uint16(i), b.slots[i].seq, *b.slots[i].refusal
	}
	b.mu.Unlock()
	return tag, seq, r, ok
}

// decided stores the decision about a refused message, and the policies that made it; by is nil
// once the retry begins. It reports whether the message is still in the outbox.
func (b *outbox) decided(tag uint16, seq uint64, d retrypolicy.Decision, by *policies) bool {
	b.mu.Lock()
	s := &b.slots[tag]
	there := s.seq == seq && s.refusal != nil
	if there {
		s.refusal.last, s.refusal.by = d, by
	}
	b.mu.Unlock()
	return there
}

// fail ends a message that is not in flight.
func (b *outbox) fail(tag uint16, seq uint64, err *transport.Error) {
	b.mu.Lock()
	if s := &b.slots[tag]; s.seq == seq && (s.state == slotRefused || s.state == slotQueued) {
		b.totals.Refused++
		b.removeLocked(int32(tag), b.outcomeLocked(int32(tag), err))
	}
	b.mu.Unlock()
}

// untake puts back messages that take returned and that were not handed over.
func (b *outbox) untake(batch []transport.Item) {
	if len(batch) == 0 {
		return
	}
	b.mu.Lock()
	for _, item := range batch {
		s := &b.slots[item.Tag]
		if s.state != slotInFlight {
			continue // a hub answered for it without having received it
		}
		if s.again || s.refusal != nil {
			b.totals.Resent--
		}
		b.returnCopyLocked(s)
		s.state = slotQueued // b.expiry still covers it, because take did not change it
		b.inFlight--
	}
	b.cursor = b.nextQueuedLocked(b.head)
	b.mu.Unlock()
}

// reject ends a message that take returned and that is not handed over.
func (b *outbox) reject(tag uint16, seq uint64, err *transport.Error) {
	b.mu.Lock()
	if s := &b.slots[tag]; s.seq == seq && s.state == slotInFlight {
		b.totals.Refused++
		if s.again {
			err = operr.OutcomeUnknown(err)
		}
		b.removeLocked(int32(tag), err)
	}
	b.mu.Unlock()
}

// anyRefused reports whether refused messages wait for a decision.
func (b *outbox) anyRefused() bool {
	b.mu.Lock()
	refused := b.refused > 0
	b.mu.Unlock()
	return refused
}

// taken returns the number and the refusals of a message that take returned.
func (b *outbox) taken(tag uint16) (seq uint64, r refusal) {
	b.mu.Lock()
	s := &b.slots[tag]
	seq = s.seq
	if s.refusal != nil {
		r = *s.refusal
	}
	b.mu.Unlock()
	return seq, r
}

// outcomeLocked returns the result for a message that leaves the outbox without an answer of the
// hub: err, marked as unknown outcome if the message was handed over.
func (b *outbox) outcomeLocked(i int32, err *transport.Error) error {
	if s := &b.slots[i]; s.state == slotInFlight || s.again {
		return operr.OutcomeUnknown(err)
	}
	return err
}

// requeue queues the refused messages again, at their positions.
func (b *outbox) requeue() {
	b.mu.Lock()
	b.backLocked(slotRefused)
	b.mu.Unlock()
}

// connect opens the window for a session.
func (b *outbox) connect(window int) {
	b.mu.Lock()
	b.window = window
	b.mu.Unlock()
}

// rewind queues all messages in flight and refused ones again, after the end of a session.
func (b *outbox) rewind() {
	b.mu.Lock()
	b.noteInFlightLocked(errGoneWith)
	b.backLocked(slotInFlight)
	b.backLocked(slotRefused)
	b.window, b.below, b.draining = 0, 0, false
	b.mu.Unlock()
}

func (b *outbox) backLocked(from slotState) {
	for i := b.head; i != none; i = b.slots[i].next {
		s := &b.slots[i]
		if s.state != from {
			continue
		}
		if from == slotInFlight {
			b.inFlight--
			b.returnCopyLocked(s)
			s.again = true
		} else {
			b.refused--
		}
		s.state = slotQueued
		b.noteExpiryLocked(s.msg)
	}
	b.cursor = b.nextQueuedLocked(b.head)
}

// answerDueFrom returns when AckTimeout began to run for the message longest in flight: when it was
// handed over, or when the message before it was answered, because a slow link is not a dead one.
// Large messages get one second more for each 4 KiB. ok is false when nothing is in flight.
func (b *outbox) answerDueFrom() (from time.Time, ok bool) {
	b.mu.Lock()
	var oldest *slot
	for i := b.head; i != none; i = b.slots[i].next {
		if s := &b.slots[i]; s.state == slotInFlight && (oldest == nil || s.handed < oldest.handed) {
			oldest = s
		}
	}
	if oldest != nil {
		from, ok = b.base.Add(max(oldest.handed, b.progress)+time.Duration(oldest.size/(4<<10))*time.Second), true
	}
	b.mu.Unlock()
	return from, ok
}

// unanswered reports whether messages are in flight and none was answered since the given time.
func (b *outbox) unanswered(since time.Time) bool {
	b.mu.Lock()
	unanswered := b.inFlight > 0 && b.progress <= since.Sub(b.base)
	b.mu.Unlock()
	return unanswered
}

// stats returns the counters of messages.
func (b *outbox) stats() Stats {
	b.mu.Lock()
	s := b.totals
	s.Queued, s.QueuedBytes, s.InFlight = b.count, b.bytes, b.inFlight
	b.mu.Unlock()
	return s
}
