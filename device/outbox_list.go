package device

import (
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/transport"
)

// appendLocked appends a message to the list in a free slot, growing the table if needed.
func (b *outbox) appendLocked(m *transport.Message, size int, r *Receipt, call bool) int32 {
	i := b.free
	if i != none {
		b.free = b.slots[i].next
	} else {
		if len(b.slots) == cap(b.slots) {
			grown := make([]slot, len(b.slots), min(max(8, 2*cap(b.slots)), b.maxMessages))
			copy(grown, b.slots)
			b.slots = grown
		}
		i = int32(len(b.slots))
		b.slots = b.slots[:i+1]
	}
	b.seq++
	b.slots[i] = slot{msg: m, receipt: r, seq: b.seq, size: int32(size), next: none, prev: b.tail, state: slotQueued,
		call: call}
	if m.ID == "" && messageid.Fits(m, size) {
		b.slots[i].id = b.ids.Next()
	}
	if b.tail == none {
		b.head = i
	} else {
		b.slots[b.tail].next = i
	}
	b.tail = i
	if b.cursor == none {
		b.cursor = i
	}
	b.count++
	b.bytes += size
	b.totals.accepted++
	return i
}

// removeLocked removes a slot from the list and gives its message the result.
func (b *outbox) removeLocked(i int32, result error) {
	s := &b.slots[i]
	b.returnCopyLocked(s)
	b.forgetLocked(s)
	switch s.state {
	case slotInFlight:
		b.inFlight--
	case slotRefused:
		b.refused--
	case slotFree, slotQueued:
	}
	if b.cursor == i {
		b.cursor = b.nextQueuedLocked(s.next)
	}
	if s.prev == none {
		b.head = s.next
	} else {
		b.slots[s.prev].next = s.next
	}
	if s.next == none {
		b.tail = s.prev
	} else {
		b.slots[s.next].prev = s.prev
	}
	b.count--
	b.bytes -= int(s.size)
	if s.receipt != nil {
		s.receipt.set(result)
	}
	// Slots are reused as late as possible, so that a hub that acknowledges a tag twice does not hit
	// the tag's next message.
	*s = slot{next: none}
	if b.free == none {
		b.free = i
	} else {
		b.slots[b.spare].next = i
	}
	b.spare = i

	b.wakeBlockedLocked()
	if len(b.flushers) > 0 {
		b.releaseFlushersLocked()
	}
}

func (b *outbox) nextQueuedLocked(i int32) int32 {
	for i != none && b.slots[i].state != slotQueued {
		i = b.slots[i].next
	}
	return i
}
