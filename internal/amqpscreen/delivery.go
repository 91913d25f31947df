package amqpscreen

import (
	"math"

	"github.com/Azure/go-amqp"
)

// Fields of a transfer.
const (
	transferHandle  = 0
	transferID      = 1
	transferTag     = 2
	transferFormat  = 3
	transferSettled = 4
	transferMore    = 5
	transferResume  = 8
	transferAborted = 9
)

// transferLocked records a transfer, and checks the message that it completes. A message that the
// library must not get is replaced by a stand-in, which the receiver of the link settles. The
// library counts the stand-in as it would count the message, so delivery-count and credit stay
// right. mu is held. pass: the library gets the frame itself, else f.before.
func (s *screen) transferLocked(h *sessionState, f *inFrame) (pass bool, bad *Violation) {
	l := h.byPeer(f.uint32(transferHandle))
	if bad := h.beginDelivery(l, f); bad != nil {
		return false, bad
	}
	settled, more := f.isTrue(transferSettled), f.isTrue(transferMore)
	if l.partial == nil {
		switch {
		case f.isTrue(transferAborted):
			h.in.settle(f.uint32(transferID), f.uint32(transferID))
			return true, nil
		case !more:
			bad := l.checkSize(len(f.payload))
			if bad == nil {
				bad = checkMessage(f.payload)
			}
			l.completed(h, f.uint32(transferID), settled)
			if bad != nil {
				d := newPartial(f)
				d.bad = bad
				f.before = d.finish(settled)
			}
			return bad == nil, nil
		}
		l.partial = newPartial(f)
	}
	d := l.partial
	d.settled = d.settled || settled
	switch {
	case f.isTrue(transferAborted):
		s.dropPartialLocked(l)
		h.in.settle(d.id, d.id)
		f.before = d.abort()
	case more:
		s.keepLocked(l, f.payload)
		d.held++
		f.before = d.passSpare()
	default:
		s.dropPartialLocked(l)
		if d.bad == nil {
			d.bad = l.checkSize(len(d.payload) + len(f.payload))
		}
		if d.bad == nil {
			d.payload = append(d.payload, f.payload...)
			d.bad = checkMessage(d.payload)
		}
		l.completed(h, d.id, d.settled)
		f.before = d.finish(settled)
	}
	return false, nil
}

// beginDelivery checks a transfer on l against the earlier frames, and records the delivery that it
// begins.
func (h *sessionState) beginDelivery(l *linkState, f *inFrame) *Violation {
	id := f.uint32(transferID)
	switch {
	case l == nil:
		return f.broken(transferHandle, notAttached, f.uint32(transferHandle))
	case !l.receives || l.refused:
		return f.broken(transferHandle, "is %d, that of a link on which the peer does not send", f.uint32(transferHandle))
	case f.isTrue(transferResume):
		return f.broken(transferResume, "is set, and no delivery is to be resumed")
	case l.partial != nil && !f.null(transferID) && id != l.partial.id:
		return f.broken(transferID, "is %d before the end of delivery %d", id, l.partial.id)
	case l.partial != nil:
		return nil
	case f.null(transferID):
		return f.broken(transferID, "is missing")
	case f.null(transferTag):
		return f.broken(transferTag, "is missing")
	case f.null(transferFormat):
		return f.broken(transferFormat, "is missing")
	case id == math.MaxUint32:
		// with the last number, the library counts for ever when it settles it
		return f.unsupported(transferID, "is %d, the last number that there is", id)
	case h.in.any && id != h.in.next:
		return f.broken(transferID, "is %d, not %d", id, h.in.next)
	case int32(l.creditEnd-l.received) <= 0:
		return f.broken(transferHandle, "is %d, that of a link without credit", f.uint32(transferHandle))
	}
	h.in.begin(id)
	return nil
}

// keepLocked keeps a part of the incomplete message of a link, unless the message is too large. mu
// is held.
func (s *screen) keepLocked(l *linkState, part []byte) {
	d := l.partial
	if d.bad != nil {
		return
	}
	d.bad = l.checkSize(len(d.payload) + len(part))
	if d.bad == nil && s.partial+len(part) > maxPartial {
		d.bad = unsupported("message", "is one of several incomplete ones, of %d bytes together", s.partial+len(part))
		d.bad.Condition = amqp.ErrCondResourceLimitExceeded
	}
	if d.bad != nil {
		s.partial -= len(d.payload)
		d.payload = nil
		return
	}
	s.partial += len(part)
	d.payload = append(d.payload, part...)
}

// checkSize checks the size of a message that may be incomplete.
func (l *linkState) checkSize(n int) *Violation {
	if uint64(n) <= l.maxSize {
		return nil
	}
	bad := unsupported("message", "has more than %d bytes", l.maxSize)
	bad.Condition = amqp.ErrCondMessageSizeExceeded
	return bad
}

// completed records a whole message on a link of the session.
func (l *linkState) completed(h *sessionState, id uint32, settled bool) {
	l.received++
	if settled {
		h.in.settle(id, id)
	}
}

// disposition records a disposition. The library walks from the first to the last number of the
// range, so the range shrinks to the unsettled deliveries in it. A disposition of other deliveries,
// settled or never sent, is dropped: rhea sends such for deliveries of an earlier session.
func (h *sessionState) disposition(f *inFrame) (pass bool, bad *Violation) {
	const role, first, last, settled = 0, 1, 2, 3
	set := &h.in
	if f.isTrue(role) {
		set = &h.out
	}
	from, to := f.uint32(first), f.uint32(first)
	if !f.null(last) {
		to = f.uint32(last)
	}
	if int32(to-from) < 0 {
		return false, f.broken(last, "is %d, which comes before first, %d", to, from)
	}
	low, high, n := set.settle(from, to)
	switch {
	case n == 0:
		return false, nil
	case high < low || high == math.MaxUint32:
		return false, f.unsupported(last, "is %d, and no numbers for deliveries are left", to)
	case n > maxUnsettledRange && !f.isTrue(settled):
		return false, f.unsupported(last, "makes a range of %d unsettled deliveries, more than %d", n, maxUnsettledRange)
	}
	if low != from {
		f.set(first, low)
	}
	if high != to || f.null(last) && low != high {
		f.set(last, high)
	}
	return true, nil
}
