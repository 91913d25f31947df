package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// batchSize is the maximum number of messages that take returns.
const batchSize = 64

// take marks queued messages as in flight, up to the window and batchSize, and appends them to
// batch, which is empty. If it returns none, the loop will be poked: for the next message, or, if
// the window is full, once an eighth of it is free. So messages go in batches although answers come
// one by one. A larger share would leave the line idle with a small window. encodes is
// transport.Info.Encodes of the session.
func (q *queue) take(batch []transport.Item, now, wall time.Time, encodes bool) []transport.Item {
	handed := now.Sub(q.base)
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < batchSize && q.cursor != none && q.inFlight < q.window {
		i := q.cursor
		s := &q.slots[i]
		if !s.msg.Expires.IsZero() && !wall.Before(s.msg.Expires) {
			q.totals.expired++
			q.removeLocked(i, q.outcomeLocked(i, errExpired))
			continue
		}
		batch = append(batch, transport.Item{Tag: uint16(i), Resent: s.resent, Msg: q.withIDLocked(s, encodes)})
		if s.resent || s.refusal != nil {
			q.totals.resent++
		}
		s.state, s.handed, s.before = slotInFlight, handed, uint32(q.totals.confirmed)
		q.inFlight++
		q.cursor = q.nextQueuedLocked(s.next)
	}
	switch {
	case len(batch) > 0:
		q.below = 0
	case q.inFlight < q.window:
		q.below = q.window
	default:
		q.below = q.window - max(1, q.window/8) + 1
	}
	return batch
}

// done takes the answer to a message in flight. It ignores tags of other messages.
func (q *queue) done(tag uint16, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := int32(tag)
	if int(i) >= len(q.slots) || q.slots[i].state != slotInFlight {
		return
	}
	wake, written := false, errors.Is(err, transport.ErrWritten)
	if written {
		err = nil
	}
	if i == q.firstInFlightLocked() {
		if q.progress = time.Since(q.base); !written {
			q.answered = q.progress
		}
	}
	failure := transport.Find(err)
	if failure == nil && err != nil {
		failure = &transport.Error{Kind: transport.KindOf(err), Op: transport.OpSend, Err: err}
	}
	s := &q.slots[i]
	q.noteLocked(s, failure, err == nil || !errfilter.Retryable(err))
	switch {
	case err == nil:
		q.totals.acknowledged++
		if !written {
			q.totals.confirmed++
		}
		q.removeLocked(i, nil)
	case errfilter.Retryable(err):
		if s.refusal == nil {
			s.refusal = &refusal{since: time.Now()}
		}
		s.refusal.count++
		s.resent = s.resent || errors.Is(err, transport.ErrOutcomeUnknown)
		s.refusal.err = failure
		s.state = slotRefused
		q.returnCopyLocked(s)
		q.inFlight--
		q.refused++
		q.noteExpiryLocked(s.msg)
		wake = true
	default:
		q.totals.refused++
		if s.resent { // the refusal of this try does not cover the previous one
			err = operr.OutcomeUnknown(failure)
		}
		q.removeLocked(i, err)
	}
	if wake || q.cursor != none && q.inFlight < q.below {
		q.below = 0
		q.poke()
	}
	if q.draining && q.inFlight == 0 {
		q.poke()
	}
}

// firstInFlightLocked returns the first message in flight in order of acceptance; there is one.
func (q *queue) firstInFlightLocked() int32 {
	i := q.head
	for q.slots[i].state != slotInFlight {
		i = q.slots[i].next
	}
	return i
}

// idle reports whether nothing is in flight. After a call the loop is poked when that becomes true,
// until the session ends.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.draining = true
	return q.inFlight == 0
}

// untake puts back messages that take returned and that were not handed over.
func (q *queue) untake(batch []transport.Item) {
	if len(batch) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range batch {
		s := &q.slots[item.Tag]
		if s.state != slotInFlight {
			continue // a hub answered for it without having received it
		}
		if s.resent || s.refusal != nil {
			q.totals.resent--
		}
		q.returnCopyLocked(s)
		s.state = slotQueued // q.expiry still covers it, because take did not change it
		q.inFlight--
	}
	q.cursor = q.nextQueuedLocked(q.head)
}

// connect opens the window for a session.
func (q *queue) connect(window int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.window = window
}

// rewind queues all messages in flight and refused ones again, after the end of a session.
func (q *queue) rewind() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sentLocked() // a callback may have ended the loop before
	q.backLocked(slotInFlight)
	q.backLocked(slotRefused)
	q.window, q.below, q.draining = 0, 0, false
}

func (q *queue) backLocked(from slotState) {
	for i := q.head; i != none; i = q.slots[i].next {
		s := &q.slots[i]
		if s.state != from {
			continue
		}
		if from == slotInFlight {
			q.inFlight--
			q.returnCopyLocked(s)
			q.noteLocked(s, errGoneWith, true)
			s.resent = true
		} else {
			q.refused--
		}
		s.state = slotQueued
		q.noteExpiryLocked(s.msg)
	}
	q.cursor = q.nextQueuedLocked(q.head)
}

// answerDueFrom returns when AckTimeout began to run for the message longest in flight: when it was
// handed over, or when the message before it was answered, because a slow link is not a dead one.
// A large message has more time: behind a hop that takes all bytes at once, the link may be slow
// without a sign of it here. ok is false when nothing is in flight.
func (q *queue) answerDueFrom() (from time.Time, more time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var oldest *slot
	for i := q.head; i != none; i = q.slots[i].next {
		if s := &q.slots[i]; s.state == slotInFlight && (oldest == nil || s.handed < oldest.handed) {
			oldest = s
		}
	}
	if oldest != nil {
		from, more, ok = q.base.Add(max(oldest.handed, q.progress)), times.Transfer(int(oldest.size)), true
	}
	return from, more, ok
}

// unanswered reports whether messages are in flight and none was answered since the given time.
func (q *queue) unanswered(since time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight > 0 && q.answered <= since.Sub(q.base)
}

// oldestRefused returns the first refused message in order of acceptance.
func (q *queue) oldestRefused() (tag uint16, seq uint64, r refusal, s *series, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok = q.refused > 0; ok {
		i := q.head
		for q.slots[i].state != slotRefused {
			i = q.slots[i].next
		}
		tag, seq, r, s = uint16(i), q.slots[i].seq, *q.slots[i].refusal, q.slots[i].series
	}
	return tag, seq, r, s, ok
}

// fail ends a message that is not in flight.
func (q *queue) fail(tag uint16, seq uint64, err *transport.Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := &q.slots[tag]; s.seq == seq && (s.state == slotRefused || s.state == slotQueued) {
		q.totals.refused++
		q.removeLocked(int32(tag), q.outcomeLocked(int32(tag), err))
	}
}

// anyRefused reports whether refused messages wait for a decision.
func (q *queue) anyRefused() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.refused > 0
}

// taken returns the number, the refusals and the series of a message that take returned.
func (q *queue) taken(tag uint16) (seq uint64, r refusal, series *series) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.slots[tag]
	seq, series = s.seq, s.series
	if s.refusal != nil {
		r = *s.refusal
	}
	return seq, r, series
}

// requeue queues the refused messages again, at their positions.
func (q *queue) requeue() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backLocked(slotRefused)
}

// evidence describes the queue at this moment, with the messages in the given state as those in
// flight.
func (q *queue) evidence(inFlight slotState) evidence {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := evidence{acknowledged: q.totals.confirmed}
	for i := q.head; i != none; i = q.slots[i].next {
		if s := &q.slots[i]; s.state == inFlight {
			e.inFlight++
			if e.front == 0 {
				e.front, e.size, e.handed = s.seq, int(s.size), q.base.Add(s.handed)
				e.overtaken = uint32(q.totals.confirmed) != s.before
			}
			e.newest = s.seq
		}
	}
	return e
}

// remember keeps the series of a message.
func (q *queue) remember(tag uint16, seq uint64, s *series) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if to := &q.slots[tag]; to.seq == seq && to.state != slotFree {
		to.series = s
	} else {
		q.tellLocked(outcome{series: s, over: true})
	}
}

// forget ends the series of all messages.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := q.head; i != none; i = q.slots[i].next {
		q.forgetLocked(&q.slots[i])
	}
}

// collect returns the outcomes that are not reported yet, in order. Loop only.
func (q *queue) collect() []outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.collected = append(q.collected, q.outcomes...)
	clear(q.outcomes)
	q.outcomes = q.outcomes[:0]
	return q.collected
}

// reported forgets the collected outcomes. Loop only.
func (q *queue) reported() {
	clear(q.collected)
	q.collected = q.collected[:0]
}
