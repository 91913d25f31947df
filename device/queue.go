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

	// When the oldest message was last answered, since base. progress is also of a message with QoS 0,
	// which is only written.
	progress, answered time.Duration

	totals queueTotals

	outcomes, collected []outcome // for the loop; with the loop until reported

	ids    messageid.Source     // generates ids for messages without one
	copies []*transport.Message // copies for messages with a generated id, without those of slots
	lent   int                  // how many of them are in the batch that a session encodes
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
	before     uint32        // totals.confirmed when it was handed over
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

// appendLocked appends a message to the list in a free slot, growing the table if needed.
func (q *queue) appendLocked(m *transport.Message, size int, r *Receipt, call bool) int32 {
	i := q.free
	if i != none {
		q.free = q.slots[i].next
	} else {
		if len(q.slots) == cap(q.slots) {
			grown := make([]slot, len(q.slots), min(max(8, 2*cap(q.slots)), q.maxMessages))
			copy(grown, q.slots)
			q.slots = grown
		}
		i = int32(len(q.slots))
		q.slots = q.slots[:i+1]
	}
	q.seq++
	q.slots[i] = slot{msg: m, receipt: r, seq: q.seq, size: int32(size), next: none, prev: q.tail, state: slotQueued,
		call: call}
	if m.ID == "" && messageid.Fits(m, size) {
		q.slots[i].id = q.ids.Next()
	}
	if q.tail == none {
		q.head = i
	} else {
		q.slots[q.tail].next = i
	}
	q.tail = i
	if q.cursor == none {
		q.cursor = i
	}
	q.count++
	q.bytes += size
	q.totals.accepted++
	return i
}

// removeLocked removes a slot from the list and gives its message the result.
func (q *queue) removeLocked(i int32, result error) {
	s := &q.slots[i]
	q.returnCopyLocked(s)
	q.forgetLocked(s)
	switch s.state {
	case slotInFlight:
		q.inFlight--
	case slotRefused:
		q.refused--
	case slotFree, slotQueued:
	}
	if q.cursor == i {
		q.cursor = q.nextQueuedLocked(s.next)
	}
	if s.prev == none {
		q.head = s.next
	} else {
		q.slots[s.prev].next = s.next
	}
	if s.next == none {
		q.tail = s.prev
	} else {
		q.slots[s.next].prev = s.prev
	}
	q.count--
	q.bytes -= int(s.size)
	if s.receipt != nil {
		s.receipt.set(result)
	}
	// Slots are reused as late as possible, so that a hub that acknowledges a tag twice does not hit
	// the tag's next message.
	*s = slot{next: none}
	if q.free == none {
		q.free = i
	} else {
		q.slots[q.spare].next = i
	}
	q.spare = i

	q.wakeBlockedLocked()
	if len(q.flushers) > 0 {
		q.releaseFlushersLocked()
	}
}

func (q *queue) nextQueuedLocked(i int32) int32 {
	for i != none && q.slots[i].state != slotQueued {
		i = q.slots[i].next
	}
	return i
}

// A message without an id gets one when it is accepted, and keeps it for all resends. The message
// belongs to the caller, who may send it again as another message, so the session gets a copy with
// the id. Copies are reused: there are as many as were in flight at a time, or, if the session
// encodes them in Send, as were in a batch.

// withIDLocked returns the message of slot s as the session gets it.
func (q *queue) withIDLocked(s *slot, encodes bool) *transport.Message {
	if s.id == "" {
		return s.msg
	}
	if q.lent == len(q.copies) {
		q.copies = append(q.copies, new(transport.Message))
	}
	var own *transport.Message
	if encodes {
		own = q.copies[q.lent]
		q.lent++
	} else {
		last := len(q.copies) - 1
		own, q.copies = q.copies[last], q.copies[:last]
		s.copied = own
	}
	*own = *s.msg
	own.ID = s.id
	return own
}

// sent takes back the copies of a batch that the session has encoded, or did not get.
func (q *queue) sent() {
	q.mu.Lock()
	q.sentLocked()
	q.mu.Unlock()
}

func (q *queue) sentLocked() {
	for _, m := range q.copies[:q.lent] {
		*m = transport.Message{} // which holds the memory of the caller
	}
	q.lent = 0
}

// returnCopyLocked takes the copy back once the session does not use it any more. A session reports
// a message as done only after it has written it, whatever the hub sends.
func (q *queue) returnCopyLocked(s *slot) {
	if s.copied != nil {
		*s.copied = transport.Message{}
		q.copies = append(q.copies, s.copied)
		s.copied = nil
	}
}

// refusal is the history of a message that the service refused, as the policy needs it.
type refusal struct {
	err   *transport.Error
	count int
	since time.Time
}

// flusher is a waiting Flush.
type flusher struct {
	upTo uint64
	done chan error // capacity 1
}

// releaseFlushersLocked ends each Flush whose messages all have their results.
func (q *queue) releaseFlushersLocked() {
	kept := q.flushers[:0]
	for _, f := range q.flushers {
		if q.head == none || q.slots[q.head].seq > f.upTo {
			f.done <- nil
		} else {
			kept = append(kept, f)
		}
	}
	q.flushers = kept
}

// outcome is what the loop has to tell the series of a message.
type outcome struct {
	series *series
	ended  bool             // an attempt ended, with err
	err    *transport.Error // nil: acknowledged
	retry  int              // number of the attempt, 0 for the first
	over   bool             // the series ends
}

// noteLocked records that the attempt of slot s ended with err. over ends the series: the message
// leaves the queue, or begins a new one.
func (q *queue) noteLocked(s *slot, err *transport.Error, over bool) {
	if s.series == nil {
		return
	}
	o := outcome{series: s.series, ended: true, err: err, over: over}
	if s.refusal != nil {
		o.retry = s.refusal.count
	}
	if over {
		s.series = nil
	}
	q.tellLocked(o)
}

// forgetLocked records that the series of slot s ends.
func (q *queue) forgetLocked(s *slot) {
	if s.series != nil {
		q.tellLocked(outcome{series: s.series, over: true})
		s.series = nil
	}
}

func (q *queue) tellLocked(o outcome) {
	if len(q.outcomes) == 0 {
		q.poke()
	}
	q.outcomes = append(q.outcomes, o)
}
