package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

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
			b.totals.expired++
			b.removeLocked(i, b.outcomeLocked(i, errExpired))
			continue
		}
		batch = append(batch, transport.Item{Tag: uint16(i), Resent: s.resent, Msg: b.withIDLocked(s)})
		if s.resent || s.refusal != nil {
			b.totals.resent++
		}
		s.state, s.handed, s.before = slotInFlight, handed, uint32(b.totals.acknowledged)
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
	b.noteLocked(s, failure, err == nil || !errfilter.Retryable(err))
	switch {
	case err == nil:
		b.totals.acknowledged++
		b.removeLocked(i, nil)
	case errfilter.Retryable(err):
		if s.refusal == nil {
			s.refusal = &refusal{since: time.Now()}
		}
		s.refusal.count++
		s.resent = s.resent || errchain.Has(err, transport.ErrOutcomeUnknown)
		s.refusal.err = failure
		s.state = slotRefused
		b.returnCopyLocked(s)
		b.inFlight--
		b.refused++
		b.noteExpiryLocked(s.msg)
		wake = true
	default:
		b.totals.refused++
		if s.resent { // the refusal of this try does not cover the previous one
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
		if s.resent || s.refusal != nil {
			b.totals.resent--
		}
		b.returnCopyLocked(s)
		s.state = slotQueued // b.expiry still covers it, because take did not change it
		b.inFlight--
	}
	b.cursor = b.nextQueuedLocked(b.head)
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
			b.noteLocked(s, errGoneWith, true)
			s.resent = true
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
// A large message has more time: behind a hop that takes all bytes at once, the link may be slow
// without a sign of it here. ok is false when nothing is in flight.
func (b *outbox) answerDueFrom() (from time.Time, more time.Duration, ok bool) {
	b.mu.Lock()
	var oldest *slot
	for i := b.head; i != none; i = b.slots[i].next {
		if s := &b.slots[i]; s.state == slotInFlight && (oldest == nil || s.handed < oldest.handed) {
			oldest = s
		}
	}
	if oldest != nil {
		from, more, ok = b.base.Add(max(oldest.handed, b.progress)), times.Transfer(int(oldest.size)), true
	}
	b.mu.Unlock()
	return from, more, ok
}

// unanswered reports whether messages are in flight and none was answered since the given time.
func (b *outbox) unanswered(since time.Time) bool {
	b.mu.Lock()
	unanswered := b.inFlight > 0 && b.progress <= since.Sub(b.base)
	b.mu.Unlock()
	return unanswered
}
