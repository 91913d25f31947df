package amqp

import (
	"bytes"
	"cmp"
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	maxTag       = 32
	transferRoom = 80 // most bytes of a frame besides the payload

	// maxParts is how many incomplete messages a connection may have. It bounds the memory that a
	// client can make the server use.
	maxParts = 64
	// maxQueued is how many frames of a session may wait for the client's window, maxUnsettled how
	// many messages for the client's disposition. At either limit the server stops sending.
	maxQueued    = 4096
	maxUnsettled = 4096
)

// transfer handles a message, or a part of one, from the client.
func (s *Session) transfer(t *wire.Transfer, payload []byte) error {
	c := s.conn
	c.mu.Lock()
	switch {
	case s.window > 0:
		s.window--
	case !c.cfg.OmitNextIncomingID: // else the client cannot know how much of the window is used
		c.mu.Unlock()
		return broken(wire.WindowViolation, "transfer beyond the window")
	}
	s.nextIncoming++
	if s.window <= c.cfg.SessionWindow/2 && !s.renew {
		s.renew = true
		c.toTell = append(c.toTell, s)
	}
	l := s.links[t.Handle]
	if l == nil {
		failed := s.detached[t.Handle]
		c.mu.Unlock()
		if failed {
			return broken(wire.ErrantLink, "transfer on handle %d, which was detached with an error", t.Handle)
		}
		return broken(wire.UnattachedHandle, "transfer on handle %d", t.Handle)
	}
	state := l.state
	c.mu.Unlock()
	switch {
	case state != attached && state != asked:
		return nil // the transfer crossed the detach
	case state == asked:
		return broken(wire.UnattachedHandle, "transfer on handle %d, whose attach was not answered", t.Handle)
	case !l.Receives():
		return broken(wire.NotAllowed, "transfer on handle %d, which receives", t.Handle)
	case t.Resume:
		return l.fault(wire.NotImplemented, "delivery that resumes")
	}
	return s.assemble(l, t, payload)
}

// assemble collects the frames of a message and passes it to the handler.
func (s *Session) assemble(l *Link, t *wire.Transfer, payload []byte) error {
	d := l.part
	if d == nil {
		switch {
		case !t.DeliveryID.OK:
			return l.fault(wire.InvalidField, "first transfer of a delivery without delivery-id")
		case len(t.DeliveryTag) == 0, len(t.DeliveryTag) > maxTag:
			return l.fault(wire.InvalidField, "delivery-tag of %d bytes", len(t.DeliveryTag))
		case s.delivered && int32(t.DeliveryID.V-s.lastDelivery) <= 0:
			return broken(wire.InvalidField, "delivery-id %d after %d", t.DeliveryID.V, s.lastDelivery)
		}
		s.delivered, s.lastDelivery = true, t.DeliveryID.V
		if !l.takeCredit() {
			return l.fault(wire.TransferLimitExceeded, "transfer without credit")
		}
		d = &Delivery{ID: t.DeliveryID.V, Tag: t.DeliveryTag, Format: t.MessageFormat.V}
	} else if t.DeliveryID.OK && t.DeliveryID.V != d.ID || t.DeliveryTag != nil && !bytes.Equal(t.DeliveryTag, d.Tag) ||
		t.MessageFormat.OK && t.MessageFormat.V != d.Format {
		return l.fault(wire.InvalidField, "transfer of another delivery before the end of delivery %d", d.ID)
	}
	l.part = nil
	d.Settled = d.Settled || t.Settled.V
	if t.Aborted {
		return nil
	}
	if limit := l.Answer.MaxMessageSize; limit > 0 && uint64(len(d.Payload)+len(payload)) > limit {
		return l.fault(wire.MessageSizeExceeded, "message of more than %d bytes", limit)
	}
	if d.Payload == nil && t.More {
		d.Payload = make([]byte, 0, max(l.size, len(payload))) // the next message is often as large
	}
	d.Payload = append(d.Payload, payload...)
	if t.More {
		l.part = d
		return s.keepPart(l)
	}
	l.size = len(d.Payload)
	switch mode := l.Asked.SndSettleMode; {
	case mode == wire.SendSettled && !d.Settled, mode == wire.SendUnsettled && d.Settled:
		return l.fault(wire.InvalidField, "delivery %d is not settled as snd-settle-mode %d says", d.ID, mode)
	}
	return s.conn.handler.Message(l, *d)
}

// keepPart records that a link has an incomplete message.
func (s *Session) keepPart(l *Link) error {
	parts := s.conn.parts
	parts[l] = struct{}{}
	if len(parts) <= maxParts {
		return nil
	}
	for other := range parts {
		if other.part == nil || !other.Attached() {
			delete(parts, other)
		}
	}
	if len(parts) <= maxParts {
		return nil
	}
	return wire.Errorf(wire.ResourceLimitExceeded, "more than %d messages that are not complete", maxParts)
}

// takeCredit uses one unit of credit and renews it at half of the window.
func (l *Link) takeCredit() bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.credit == 0 {
		return false
	}
	l.count++
	l.credit--
	if l.credit <= l.window/2 && l.window > 0 && !l.needsCredit {
		l.needsCredit = true
		l.session.needsCredit = append(l.session.needsCredit, l)
		c.toTell = append(c.toTell, l.session)
	}
	return true
}

// Allow gives the client credit for n messages and renews it at half. Zero stops the renewal.
func (l *Link) Allow(n uint32) {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != attached || c.dead {
		return
	}
	l.window = n
	if n > l.credit {
		l.credit = n
		l.session.writeFlowLocked(l)
	}
	c.doneLocked()
}

// Settle sends the final state of a message that the client sent unsettled. The state must not be
// nil.
func (l *Link) Settle(id uint32, state wire.DeliveryState) {
	s := l.session
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if l.state != attached || s.conn.dead {
		return
	}
	if _, ok := state.(*wire.Accepted); ok {
		s.acceptLocked(id)
	} else {
		s.tellLocked()
		s.conn.writeLocked(s.channel, &wire.Disposition{Role: wire.RoleReceiver, First: id, Last: wire.Some(id),
			Settled: true,
			State:   state}, nil)
	}
	s.conn.doneLocked()
}

// Attached reports whether both sides have attached, and neither has detached.
func (l *Link) Attached() bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.state == attached && !c.dead
}

// Ready reports whether a message can be sent at once: there is credit, and room in the queues.
func (l *Link) Ready() bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.readyLocked()
}

func (l *Link) readyLocked() bool {
	return l.state == attached && l.credit > 0 && !l.session.conn.dead && !l.session.fullLocked()
}

// fullLocked reports whether a queue limit stops the session until the client acts.
func (s *Session) fullLocked() bool {
	return len(s.queue) >= maxQueued || len(s.unsettled) >= maxUnsettled
}

// creditedLocked returns the links that are ready to send, by handle.
func (s *Session) creditedLocked() []*Link {
	var all []*Link
	for _, l := range s.links {
		if !l.Receives() && l.readyLocked() {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *Link) int { return cmp.Compare(a.handle, b.handle) })
	return all
}

// Room returns how many messages the client has given credit for, zero while its window is used up.
// Handler.Credit is called when that changes.
func (l *Link) Room() int {
	s := l.session
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if !l.readyLocked() || s.remote == 0 || len(s.queue) > 0 {
		return 0
	}
	return int(min(l.credit, 1<<30))
}

// Send sends a message; false when the link is not ready. Each unsettled message ends with a call
// of Handler.Settled, or of Handler.Detached for its link.
func (l *Link) Send(m Outgoing) bool { return l.SendAll([]Outgoing{m}) == 1 }

// SendAll is Send for several messages, which are written together. It returns how many were sent.
func (l *Link) SendAll(all []Outgoing) int {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, m := range all {
		if !l.readyLocked() {
			c.doneLocked()
			return n
		}
		l.sendLocked(m)
	}
	c.doneLocked()
	return len(all)
}

func (l *Link) sendLocked(m Outgoing) {
	s, c := l.session, l.session.conn
	l.credit--
	l.count++
	id := s.nextDelivery
	s.nextDelivery++
	if !m.Settled {
		s.unsettled[id] = &sent{l, m.Tag}
	}
	if len(m.Payload)+transferRoom <= int(min(c.frame, maxFrame)) && s.remote > 0 && len(s.queue) == 0 {
		if !c.dead {
			c.out = wire.AppendDelivery(c.out, s.channel, l.handle, id, m.Tag, m.Settled, m.Payload)
		}
		s.sentLocked()
		return
	}
	for first, rest := true, m.Payload; first || len(rest) > 0; first = false {
		t := &wire.Transfer{Handle: l.handle}
		if first {
			t.DeliveryID, t.DeliveryTag, t.MessageFormat, t.Settled = wire.Some(id), m.Tag, wire.Some(uint32(0)),
				wire.Some(m.Settled)
		}
		part := rest[:min(len(rest), int(min(c.frame, maxFrame))-transferRoom)]
		rest = rest[len(part):]
		t.More = len(rest) > 0
		frame, err := wire.AppendFrame(make([]byte, 0, len(part)+transferRoom), s.channel, t, part)
		if err != nil {
			panic("amqp: " + err.Error()) // a transfer always encodes
		}
		if s.remote > 0 && len(s.queue) == 0 {
			s.putLocked(frame)
		} else {
			s.queue = append(s.queue, queued{l, frame})
		}
	}
}
