package amqp

import "math"

// transferLocked records a transfer, and checks the message that it completes. The library gets the
// payload of a message with the last transfer, after the check, so that a harmful message can be
// replaced. mu is held.
func (s *screen) transferLocked(h *sessionState, f *inFrame) *violation {
	const handle, deliveryID, deliveryTag, messageFormat, settled, more, resume, aborted = 0, 1, 2, 3, 4, 5, 8, 9
	l := h.byPeer(f.uint32(handle))
	switch {
	case l == nil:
		return f.broken(handle, notAttached, f.uint32(handle))
	case !l.receives || l.refused:
		return f.broken(handle, "is %d, that of a link on which the peer does not send", f.uint32(handle))
	case f.truth(resume):
		return f.broken(resume, "is set, and no delivery is to be resumed")
	}
	var p partialMessage // with this frame
	if l.partial != nil {
		p = *l.partial
	}
	switch id := f.uint32(deliveryID); {
	case l.partial != nil && !f.null(deliveryID) && id != p.id:
		return f.broken(deliveryID, "is %d before the end of delivery %d", id, p.id)
	case l.partial != nil:
	case f.null(deliveryID):
		return f.broken(deliveryID, "is missing")
	case f.null(deliveryTag):
		return f.broken(deliveryTag, "is missing")
	case f.null(messageFormat):
		return f.broken(messageFormat, "is missing")
	case id == math.MaxUint32:
		// with the last number, the library counts for ever when it settles it
		return f.unsupported(deliveryID, "is %d, the last number that there is", id)
	case h.in.any && id != h.in.next:
		return f.broken(deliveryID, "is %d, not %d", id, h.in.next)
	case int32(l.creditEnd-l.received) <= 0:
		return f.broken(handle, "is %d, that of a link without credit", f.uint32(handle))
	default:
		h.in.saw(id)
		p.id = id
	}
	p.settled = p.settled || f.truth(settled)
	if f.truth(aborted) {
		s.dropPartialLocked(l)
		return nil
	}
	if size := uint64(len(p.payload) + len(f.payload)); size > l.maxSize {
		return unsupported("message", "has %d bytes, more than %d", size, l.maxSize)
	}
	if f.truth(more) {
		p.payload = append(p.payload, f.payload...)
		s.partial += len(f.payload)
		if l.partial == nil {
			l.partial = new(partialMessage)
		}
		*l.partial = p
		if s.partial > maxPartial {
			return unsupported("message", "is one of several incomplete ones, of %d bytes together", s.partial)
		}
		f.replace(nil)
		return nil
	}
	payload := f.payload
	if l.partial != nil {
		payload = append(p.payload, f.payload...)
		s.dropPartialLocked(l)
		f.replace(payload)
	}
	l.received++
	if !p.settled {
		h.in.add(p.id)
	}
	if bad := checkMessage(payload); bad != nil {
		f.replace(appendBroken(nil, bad))
	}
	return nil
}

// disposition records a disposition. The library walks from the first to the last number of the
// range, so the range shrinks to the unsettled deliveries in it. A disposition of other deliveries,
// settled or never sent, is dropped: rhea sends such for deliveries of an earlier session.
func (h *sessionState) disposition(f *inFrame) (pass bool, bad *violation) {
	const role, first, last, settled = 0, 1, 2, 3
	set := &h.in
	if f.truth(role) {
		set = &h.out
	}
	from, to := f.uint32(first), f.uint32(first)
	if !f.null(last) {
		to = f.uint32(last)
	}
	if int32(to-from) < 0 {
		return false, f.broken(last, "is %d, which comes before first, %d", to, from)
	}
	low, high, n := set.take(from, to)
	switch {
	case n == 0:
		return false, nil
	case high < low || high == math.MaxUint32:
		return false, f.unsupported(last, "is %d, and no numbers for deliveries are left", to)
	case n > maxUnsettledRange && !f.truth(settled):
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
