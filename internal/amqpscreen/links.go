package amqpscreen

import "time"

func (s *screen) beginLocked(f *inFrame) *Violation {
	const remoteChannel = 0
	if f.null(remoteChannel) {
		return f.unsupported(remoteChannel, "is missing: sessions are begun by this side only")
	}
	h := s.local[uint16(f.uint32(remoteChannel))]
	switch {
	case h == nil || h.begun:
		return f.broken(remoteChannel, "is %d, on which no session is being begun", f.uint32(remoteChannel))
	case s.remote[f.channel] != nil:
		return broken(f.name, "is on channel %d, which has a session", f.channel)
	}
	h.begun = true
	if s.remote == nil {
		s.remote = make(map[uint16]*sessionState)
	}
	s.remote[f.channel] = h
	return nil
}

func (s *screen) endLocked(channel uint16, h *sessionState) {
	delete(s.remote, channel)
	if s.local[h.channel] == h {
		delete(s.local, h.channel)
	}
	for _, l := range h.links {
		s.dropPartialLocked(l)
	}
	s.ended++
}

// dropPartialLocked drops the incomplete message of a link. mu is held.
func (s *screen) dropPartialLocked(l *linkState) {
	if l.partial != nil {
		s.partial -= len(l.partial.payload)
		l.partial = nil
	}
}

// byPeer finds a link by the peer's handle, nil if there is none.
func (h *sessionState) byPeer(handle uint32) *linkState {
	for _, l := range h.links {
		if l.attached && l.peer == handle {
			return l
		}
	}
	return nil
}

// notAttached is the problem text for an unknown handle.
const notAttached = "is %d, to which no link is attached"

// attach records an attach. The receiver decides when it settles [2.6.12, 2.7.3], and this side
// settles with its first disposition. If the sender says otherwise, the library waits for an answer
// to each disposition, for ever, and keeps the numbers of aborted deliveries.
//
// A max-message-size of the sender is dropped: the library would end the link for a larger message.
func (h *sessionState) attach(f *inFrame) *Violation {
	const first = 0
	const name, handle, role, settleMode, source, target, initialCount, maxMessageSize = 0, 1, 2, 4, 5, 6, 9, 10
	if h.byPeer(f.uint32(handle)) != nil {
		return f.broken(handle, "is %d, which is in use", f.uint32(handle))
	}
	for _, l := range h.links {
		if l.attached || l.receives == f.isTrue(role) || l.name != string(f.text(name)) {
			continue
		}
		l.attached, l.peer, l.received = true, f.uint32(handle), f.uint32(initialCount)
		l.creditEnd = l.received // until a flow is sent
		l.refused = l.receives && f.null(source) || !l.receives && f.null(target)
		if l.receives && f.uint32(settleMode) != first {
			f.set(settleMode, first)
		}
		if l.receives && f.all[maxMessageSize].number > 0 {
			f.set(maxMessageSize, 0)
		}
		return nil
	}
	return f.unsupported(name, "is not that of a link that is being attached: links are attached by this side only")
}

// detachLocked records a detach. It makes each detach a closing one: after any other the library
// waits for ever. Deliveries on the link are settled: the library would end the session for a later
// disposition of one. mu is held.
func (s *screen) detachLocked(h *sessionState, f *inFrame) *Violation {
	const handle, closing = 0, 1
	for i, l := range h.links {
		if !l.attached || l.peer != f.uint32(handle) {
			continue
		}
		if l.partial != nil {
			f.before = l.partial.passAll() // they count for the session
			h.in.settle(l.partial.id, l.partial.id)
		}
		s.dropPartialLocked(l)
		if l.unsettled {
			h.out.settle(l.firstUnsettled, l.lastUnsettled)
		}
		if l.sending {
			h.out.settle(l.sendingID, l.sendingID)
		}
		h.links = append(h.links[:i], h.links[i+1:]...)
		if !f.isTrue(closing) {
			f.set(closing, 1)
		}
		return nil
	}
	return f.broken(handle, notAttached, f.uint32(handle))
}

// held returns how many transfers of the session the library has not got.
func (h *sessionState) held() (n uint32) {
	for _, l := range h.links {
		if l.partial != nil {
			n += uint32(l.partial.held)
		}
	}
	return n
}

// completeWindow corrects next-incoming-id, from which the library computes the rest of the peer's
// window.
//
// The field is mandatory [2.7.4], and the library ends the session for a flow without it. Some
// hubs omit it (go-amqp issue 326). The number of transfers that were sent takes its place, which
// is right for a peer that opens its window as it receives. Proton does the same.
//
// The library computes without a sign: a window that ends before the transfers that were sent, as
// one that the peer has closed, would be one of 2^32 transfers. Such a window has no rest.
func (h *sessionState) completeWindow(f *inFrame) {
	const nextIncoming, window = 0, 1
	inFlight := int64(int32(h.transfers - f.uint32(nextIncoming)))
	switch most := int64(f.uint32(window)); {
	case f.null(nextIncoming):
		f.set(nextIncoming, h.transfers)
	case inFlight > most:
		f.set(nextIncoming, h.transfers-f.uint32(window))
	}
}

// flow records a flow, and fills in the optional fields that the library needs. The library takes
// next-outgoing-id as its next-incoming-id, and counts held transfers when it gets them. So the
// flow must not count them.
func (h *sessionState) flow(f *inFrame) *Violation {
	const nextOutgoing, handle, deliveryCount, linkCredit = 2, 4, 5, 6
	h.completeWindow(f)
	if n := h.held(); n > 0 {
		f.set(nextOutgoing, f.uint32(nextOutgoing)-n)
	}
	if f.null(handle) {
		return nil
	}
	l := h.byPeer(f.uint32(handle))
	switch {
	case l == nil:
		return f.broken(handle, notAttached, f.uint32(handle))
	case l.refused:
		return f.broken(handle, "is %d, that of a link that was refused", f.uint32(handle))
	}
	if now := time.Now(); l.flows == 0 || now.Sub(l.since) > flowTime {
		l.flows, l.since = 0, now
	}
	if l.flows++; l.flows > maxFlows {
		return f.unsupported(handle, "is that of a link with %d flows while this side sends nothing on it", l.flows)
	}
	if l.receives {
		return nil
	}
	count, credit := f.uint32(deliveryCount), f.uint32(linkCredit)
	switch {
	case f.null(linkCredit) && f.null(deliveryCount):
		count, credit = l.count, l.credit
	case f.null(linkCredit):
		credit = rest(l.credit, count-l.count)
	}
	if used := l.sent - count; int32(used) > 0 && credit < used {
		credit = used // no credit is left; the library would count below zero
	}
	l.count, l.credit = count, credit
	if f.null(deliveryCount) {
		f.set(deliveryCount, count)
	}
	if f.null(linkCredit) || credit != f.uint32(linkCredit) {
		f.set(linkCredit, credit)
	}
	return nil
}

// rest returns the remaining credit. used is negative when the peer counts further than this side.
func rest(credit, used uint32) uint32 {
	if int32(used) < 0 {
		return credit
	}
	return credit - min(credit, used)
}
