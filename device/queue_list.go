package device

import (
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/transport"
)

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
// the id. Copies are reused: there are as many as were in flight at a time.

// withIDLocked returns the message of slot s as the session gets it.
func (q *queue) withIDLocked(s *slot) *transport.Message {
	if s.id == "" {
		return s.msg
	}
	if n := len(q.copies); n > 0 {
		s.copied, q.copies = q.copies[n-1], q.copies[:n-1]
	} else {
		s.copied = new(transport.Message)
	}
	*s.copied = *s.msg
	s.copied.ID = s.id
	return s.copied
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
