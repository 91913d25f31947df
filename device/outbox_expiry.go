package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// noteExpiryLocked brings the next check for expired messages forward to m's expiry.
func (b *outbox) noteExpiryLocked(m *transport.Message) {
	if !m.Expires.IsZero() && (b.expiry.IsZero() || m.Expires.Before(b.expiry)) {
		b.expiry = m.Expires
	}
}

// expire ends all queued and refused messages that have expired, and returns when to call it again,
// zero for never.
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
				b.totals.expired++
				b.removeLocked(i, b.outcomeLocked(i, errExpired))
			}
		}
		i = next
	}
	return b.expiry
}

// armSweepLocked arms the timer that expires messages while no loop runs.
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
