package amqp

import (
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// queued is a transfer frame that waits for the client's window.
type queued struct {
	link  *Link
	frame []byte
}

// flow handles the session windows, then the link's credit, if the flow names a link.
func (s *Session) flow(f *wire.Flow) error {
	c := s.conn
	c.mu.Lock()
	next := uint32(sessionStart)
	if f.NextIncomingID.OK {
		next = f.NextIncomingID.V
	}
	if lead := int32(next - s.nextOutgoing); lead > 0 { // RabbitMQ ends the session too
		c.mu.Unlock()
		return broken(wire.WindowViolation, "flow with a next-incoming-id that leads by %d transfers", lead)
	}
	blocked := s.fullLocked() || s.remote == 0
	s.remote = remaining(f.IncomingWindow, s.nextOutgoing-next)
	s.pumpLocked()
	if blocked && !s.fullLocked() && s.remote > 0 {
		all := s.creditedLocked()
		c.mu.Unlock()
		for _, l := range all {
			c.handler.Credit(l)
		}
		c.mu.Lock()
	}
	if !f.Handle.OK {
		if f.DeliveryCount.OK || f.LinkCredit.OK || f.Drain {
			c.mu.Unlock()
			return broken(wire.InvalidField, "flow with the credit of no link")
		}
		if f.Echo {
			s.writeFlowLocked(nil)
		}
		c.mu.Unlock()
		return nil
	}
	l := s.links[f.Handle.V]
	if l == nil {
		_, crossed := s.detached[f.Handle.V]
		c.mu.Unlock()
		if crossed {
			return nil
		}
		return broken(wire.UnattachedHandle, "flow on handle %d", f.Handle.V)
	}
	if l.state != attached && l.state != asked {
		c.mu.Unlock()
		return nil
	}
	if l.Receives() {
		if f.Echo && l.state == attached {
			s.writeFlowLocked(l)
		}
		c.mu.Unlock()
		return nil
	}
	seen := l.initial
	if f.DeliveryCount.OK {
		seen = f.DeliveryCount.V
	}
	if f.LinkCredit.OK {
		l.credit = remaining(f.LinkCredit.V, l.count-seen)
	}
	l.drain, l.echo = f.Drain, f.Echo
	wanted := l.credit > 0 && l.state == attached // a client may give credit before its attach is answered
	c.mu.Unlock()
	if wanted {
		c.handler.Credit(l)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.drainLocked(l)
	if l.echo && l.state == attached {
		l.echo = false
		s.writeFlowLocked(l)
	}
	return nil
}

// remaining returns the rest of a window or of credit, minus the part used that the client did not
// know of.
func remaining(given, used uint32) uint32 {
	if int32(used) < 0 {
		return given
	}
	return given - min(given, used)
}

// drainLocked returns the credit of a link that the client drains, when there is nothing left to
// send.
func (s *Session) drainLocked(l *Link) {
	if !l.drain || l.state != attached || slices.ContainsFunc(s.queue, func(q queued) bool { return q.link == l }) {
		return
	}
	l.count += l.credit
	l.credit = 0
	s.writeFlowLocked(l)
	l.drain, l.echo = false, false
}

// writeFlowLocked sends a flow with the windows, and with the state of a link unless it is nil.
func (s *Session) writeFlowLocked(l *Link) {
	f := &wire.Flow{
		NextIncomingID: wire.Some(s.nextIncoming), IncomingWindow: s.window,
		NextOutgoingID: s.nextOutgoing, OutgoingWindow: 1<<31 - 1,
	}
	if s.conn.cfg.OmitNextIncomingID {
		f.NextIncomingID = wire.Opt[uint32]{}
	}
	if l != nil {
		f.Handle = wire.Some(l.handle)
		f.DeliveryCount, f.LinkCredit = wire.Some(l.count), wire.Some(l.credit)
		f.Drain = l.drain
	}
	s.conn.writeLocked(s.channel, f, nil)
}

// pumpLocked sends queued frames as far as the window allows.
func (s *Session) pumpLocked() {
	n := 0
	for n < len(s.queue) && s.remote > 0 {
		s.putLocked(s.queue[n].frame)
		n++
	}
	if n == 0 {
		return
	}
	s.queue = slices.Delete(s.queue, 0, n)
	for _, l := range s.links {
		if l.drain {
			s.drainLocked(l)
		}
	}
}

func (s *Session) putLocked(frame []byte) {
	if !s.conn.dead {
		s.conn.out = append(s.conn.out, frame...)
	}
	s.sentLocked()
}

// sentLocked counts a frame against the client's window.
func (s *Session) sentLocked() {
	s.nextOutgoing++
	s.remote--
}

// renewLocked renews a window, and the credit of links, of which much is used.
func (s *Session) renewLocked() {
	if s.ended {
		return
	}
	if s.renew {
		s.renew, s.window = false, s.conn.cfg.SessionWindow
		if len(s.needsCredit) == 0 {
			s.writeFlowLocked(nil)
		}
	}
	for _, l := range s.needsCredit {
		if l.needsCredit = false; l.state == attached && l.window > l.credit {
			l.credit = l.window
			s.writeFlowLocked(l)
		}
	}
	s.needsCredit = s.needsCredit[:0]
}
