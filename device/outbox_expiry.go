package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// noteExpiryLocked has the outbox look at m's expiry in time.
func (b *outbox) noteExpiryLocked(m *transport.Message) {
	if !m.Expires.IsZero() && (b.expiry.IsZero() || m.Expires.Before(b.expiry)) {
		b.expiry = m.Expires
	}
}

// expire gives all queued and refused messages whose time is over their result and returns when to
// look again, zero for never.
func (b *outbox) expire(wall time.Time) time.Time {
	b.mu.Lock()
	next := b.expireLocked(wall)
	b.mu.Unlock()
	return next
}

func (b *outbox) expireLocked(wall time.Time) time.Time {
	if b.expiry.IsZero() || wall.Before(b.expiry) {
		return b.expiry
	}
	b.expiry = time.Time{}
	for i := b.head; i != none; {
		s := &b.slots[i]
		next := s.next
		if s.state != slotInFlight && !s.msg.Expires.IsZero() {
			if wall.Before(s.msg.Expires) {
				b.noteExpiryLocked(s.msg)
			} else {
				b.totals.Expired++
				b.removeLocked(i, b.outcomeLocked(i, errExpired))
			}
		}
		i = next
	}
	return b.expiry
}

// armSweepLocked makes messages expire while no loop runs that would see to it.
func (b *outbox) armSweepLocked() {
	if b.halted == nil || b.closed || b.expiry.IsZero() {
		return
	}
	wait := max(0, b.expiry.Sub(b.wall()))
	if b.sweep == nil {
		b.sweep = time.AfterFunc(wait, func() {
			b.mu.Lock()
			if b.halted != nil && !b.closed {
				b.expireLocked(b.wall())
				b.armSweepLocked()
			}
			b.mu.Unlock()
		})
		return
	}
	b.sweep.Reset(wait)
}
