package amqp

import (
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Session is a session. What is in it is guarded by the connection's lock.
type Session struct {
	conn    *Conn
	channel uint16
	ended   bool // the server has sent an end; what comes is ignored up to the client's

	links map[uint32]*Link
	// Handles that are free again: a flow that crossed a detach is no fault. True if the server detached with an error.
	detached map[uint32]bool

	// Incoming transfers.
	nextIncoming uint32
	window       uint32  // frames that may still come
	renew        bool    // the window is to be renewed
	thirsty      []*Link // whose credit is to be renewed
	delivered    bool    // lastDelivery is set
	lastDelivery uint32

	// Outgoing transfers.
	nextOutgoing uint32
	remote       uint32 // frames that may still go
	nextDelivery uint32
	queue        []queued
	unsettled    map[uint32]*sent

	run   wire.Disposition // of accepted deliveries, to be told; not yet while count is zero
	count int
}

// sessionError is a fault of the client that ends a session.
type sessionError struct{ cause *wire.Error }

func (e *sessionError) Error() string { return e.cause.Error() }

func broken(condition wire.Symbol, format string, args ...any) error {
	return &sessionError{wire.Errorf(condition, format, args...)}
}

// queued is a transfer frame that waits for the client's window.
type queued struct {
	link  *Link
	frame []byte
}

// sent is a message that went unsettled.
type sent struct {
	link *Link
	tag  []byte
}

func (c *Conn) begin(channel uint16, old *Session, b *wire.Begin) error {
	switch {
	case b.RemoteChannel.OK:
		return wire.Errorf(wire.NotAllowed, "begin that answers channel %d, where nothing was asked", b.RemoteChannel.V)
	case old != nil:
		return wire.Errorf(wire.IllegalState, "begin on channel %d, which has a session", channel)
	}
	s := &Session{
		conn: c, channel: channel, links: make(map[uint32]*Link), detached: make(map[uint32]bool), unsettled: make(map[uint32]*sent),
		nextIncoming: b.NextOutgoingID, window: c.cfg.SessionWindow, nextOutgoing: sessionStart, remote: b.IncomingWindow,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[channel] = s
	c.sayLocked(channel, &wire.Begin{
		RemoteChannel: wire.Some(channel), NextOutgoingID: sessionStart, IncomingWindow: s.window, OutgoingWindow: 1<<31 - 1,
		HandleMax: c.cfg.HandleMax,
	}, nil)
	return nil
}

// handle deals with a frame. A *sessionError ends the session, another error the connection.
func (s *Session) handle(p wire.Performative, payload []byte) error {
	if end, ok := p.(*wire.End); ok {
		s.end(end)
		return nil
	}
	if s.over() {
		return nil
	}
	switch p := p.(type) {
	case *wire.Attach:
		return s.attach(p)
	case *wire.Detach:
		return s.detach(p)
	case *wire.Flow:
		return s.flow(p)
	case *wire.Transfer:
		return s.transfer(p, payload)
	case *wire.Disposition:
		return s.disposition(p)
	}
	return wire.Errorf(wire.NotAllowed, "%T in a session", p)
}

func (s *Session) over() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.ended
}

// end deals with the client's end.
func (s *Session) end(*wire.End) {
	c := s.conn
	c.mu.Lock()
	delete(c.sessions, s.channel)
	left := s.releaseLocked()
	if !s.ended {
		s.ended = true
		c.sayLocked(s.channel, &wire.End{}, nil)
	}
	c.mu.Unlock()
	for _, l := range left {
		c.handler.Detached(l)
	}
}

// fail ends the session for a fault of the client.
func (s *Session) fail(e *wire.Error) {
	for _, l := range s.End(e) {
		s.conn.handler.Detached(l)
	}
}

// End ends the session with an error unless it is nil, and returns the links that were attached.
func (s *Session) End(e *wire.Error) []*Link {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.ended || c.dead {
		return nil
	}
	s.tellLocked()
	left := s.releaseLocked()
	s.ended = true
	c.sayLocked(s.channel, &wire.End{Error: e}, nil)
	c.doneLocked()
	return left
}

// releaseLocked takes all links out of the session and returns those that were attached, by their handles.
func (s *Session) releaseLocked() []*Link {
	var left []*Link
	for _, l := range s.links {
		if l.state == attached {
			left = append(left, l)
		}
		l.state = gone
	}
	slices.SortFunc(left, func(a, b *Link) int { return int(int64(a.handle) - int64(b.handle)) })
	clear(s.links)
	clear(s.unsettled)
	s.queue = nil
	return left
}

// flow deals with windows, then with a link's credit.
func (s *Session) flow(f *wire.Flow) error {
	c := s.conn
	c.mu.Lock()
	next := uint32(sessionStart)
	if f.NextIncomingID.OK {
		next = f.NextIncomingID.V
	}
	s.remote = remaining(f.IncomingWindow, s.nextOutgoing-next)
	s.pumpLocked()
	if !f.Handle.OK {
		if f.DeliveryCount.OK || f.LinkCredit.OK || f.Drain {
			c.mu.Unlock()
			return broken(wire.InvalidField, "flow with the credit of no link")
		}
		if f.Echo {
			s.sayFlowLocked(nil)
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
	if l.state != attached {
		c.mu.Unlock()
		return nil
	}
	if l.Receives() {
		if f.Echo {
			s.sayFlowLocked(l)
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
	wanted := l.credit > 0
	c.mu.Unlock()
	if wanted {
		c.handler.Credit(l)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.drainLocked(l)
	if l.echo && l.state == attached {
		l.echo = false
		s.sayFlowLocked(l)
	}
	return nil
}

// remaining is what is left of a window, or of credit, of which the client did not know that some was used.
func remaining(given, used uint32) uint32 {
	if int32(used) < 0 {
		return given
	}
	return given - min(given, used)
}

// drainLocked gives back the credit that a client wants back, when there is nothing left to send.
func (s *Session) drainLocked(l *Link) {
	if !l.drain || l.state != attached || slices.ContainsFunc(s.queue, func(q queued) bool { return q.link == l }) {
		return
	}
	l.count += l.credit
	l.credit = 0
	s.sayFlowLocked(l)
	l.drain, l.echo = false, false
}

// sayFlowLocked tells the windows, and the state of a link unless it is nil.
func (s *Session) sayFlowLocked(l *Link) {
	f := &wire.Flow{
		NextIncomingID: wire.Some(s.nextIncoming), IncomingWindow: s.window,
		NextOutgoingID: s.nextOutgoing, OutgoingWindow: 1<<31 - 1,
	}
	if l != nil {
		f.Handle = wire.Some(l.handle)
		f.DeliveryCount, f.LinkCredit = wire.Some(l.count), wire.Some(l.credit)
		f.Drain = l.drain
	}
	s.conn.sayLocked(s.channel, f, nil)
}

// pumpLocked sends what waited for the window.
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
	s.nextOutgoing++
	s.remote--
}

// disposition deals with what the client says of messages that the server sent. Of those that it sent itself, there is
// nothing to remember.
func (s *Session) disposition(d *wire.Disposition) error {
	if d.Role == wire.RoleSender {
		return nil
	}
	last := d.First
	if d.Last.OK {
		last = d.Last.V
	}
	if int32(last-d.First) < 0 {
		return broken(wire.InvalidField, "disposition of %d to %d", d.First, last)
	}
	type one struct {
		id uint32
		*sent
	}
	var all []one
	c := s.conn
	c.mu.Lock()
	_, partial := d.State.(*wire.Received)
	final := d.Settled || d.State != nil && !partial
	if final {
		for id, m := range s.unsettled {
			if id-d.First <= last-d.First {
				all = append(all, one{id, m})
				delete(s.unsettled, id)
			}
		}
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b one) int { return int(int32(a.id - b.id)) })
	for _, m := range all {
		state := d.State
		if partial {
			state = nil
		}
		end := c.handler.Settled(m.link, m.tag, state)
		if !d.Settled {
			c.say(s.channel, &wire.Disposition{Role: wire.RoleSender, First: m.id, Last: wire.Some(m.id), Settled: true, State: end}, nil)
		}
	}
	return nil
}

// acceptLocked adds a delivery to those that are accepted, to be told together.
func (s *Session) acceptLocked(id uint32) {
	if s.count > 0 && id == s.run.Last.V+1 {
		s.run.Last.V = id
		s.count++
		return
	}
	s.tellLocked()
	s.run, s.count = wire.Disposition{Role: wire.RoleReceiver, First: id, Last: wire.Some(id), Settled: true, State: &wire.Accepted{}}, 1
	s.conn.unsaid = append(s.conn.unsaid, s)
}

// renewLocked renews the window and the credit of links of which much was used.
func (s *Session) renewLocked() {
	if s.ended {
		return
	}
	if s.renew {
		s.renew, s.window = false, s.conn.cfg.SessionWindow
		if len(s.thirsty) == 0 {
			s.sayFlowLocked(nil)
		}
	}
	for _, l := range s.thirsty {
		if l.thirsty = false; l.state == attached && l.window > l.credit {
			l.credit = l.window
			s.sayFlowLocked(l)
		}
	}
	s.thirsty = s.thirsty[:0]
}

func (s *Session) tellLocked() {
	if s.count > 0 && !s.ended {
		run := s.run
		s.conn.sayLocked(s.channel, &run, nil)
	}
	s.count = 0
}
