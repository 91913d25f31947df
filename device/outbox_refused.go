package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// refusal is the history of a message that the service refused, as the policy needs it.
type refusal struct {
	err   *transport.Error
	count int
	since time.Time
}

// oldestRefused returns the first refused message in order of acceptance.
func (b *outbox) oldestRefused() (tag uint16, seq uint64, r refusal, s *series, ok bool) {
	b.mu.Lock()
	if ok = b.refused > 0; ok {
		i := b.head
		for b.slots[i].state != slotRefused {
			i = b.slots[i].next
		}
		tag, seq, r, s = uint16(i), b.slots[i].seq, *b.slots[i].refusal, b.slots[i].series
	}
	b.mu.Unlock()
	return tag, seq, r, s, ok
}

// fail ends a message that is not in flight.
func (b *outbox) fail(tag uint16, seq uint64, err *transport.Error) {
	b.mu.Lock()
	if s := &b.slots[tag]; s.seq == seq && (s.state == slotRefused || s.state == slotQueued) {
		b.totals.refused++
		b.removeLocked(int32(tag), b.outcomeLocked(int32(tag), err))
	}
	b.mu.Unlock()
}

// reject ends a message that take returned and that is not handed over.
func (b *outbox) reject(tag uint16, seq uint64, err *transport.Error) {
	b.mu.Lock()
	if s := &b.slots[tag]; s.seq == seq && s.state == slotInFlight {
		b.totals.refused++
		if s.resent {
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

// taken returns the number, the refusals and the series of a message that take returned.
func (b *outbox) taken(tag uint16) (seq uint64, r refusal, series *series) {
	b.mu.Lock()
	s := &b.slots[tag]
	seq, series = s.seq, s.series
	if s.refusal != nil {
		r = *s.refusal
	}
	b.mu.Unlock()
	return seq, r, series
}

// requeue queues the refused messages again, at their positions.
func (b *outbox) requeue() {
	b.mu.Lock()
	b.backLocked(slotRefused)
	b.mu.Unlock()
}
