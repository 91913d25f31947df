package amqp

import (
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Session is a session. Its fields are guarded by the connection's lock.
type Session struct {
	conn    *Conn
	channel uint16
	ended   bool // the server has sent an end; frames are ignored up to the client's end

	links map[uint32]*Link
	// Free handles of detached links: a flow that crosses a detach is no violation. True if the server
	// detached with an error.
	detached map[uint32]bool

	// Incoming transfers.
	nextIncoming uint32
	window       uint32  // frames that the client may still send
	renew        bool    // the window is to be renewed
	needsCredit  []*Link // links whose credit is to be renewed
	delivered    bool    // lastDelivery is set
	lastDelivery uint32

	// Outgoing transfers.
	nextOutgoing uint32
	remote       uint32 // frames that the server may still send
	nextDelivery uint32
	queue        []queued
	unsettled    map[uint32]*sent

	run   wire.Disposition // accepted deliveries to report, while begun
	begun bool
}

// sessionError is a violation that ends a session.
type sessionError struct{ cause *wire.Error }

func (e *sessionError) Error() string { return e.cause.Error() }

func broken(condition wire.Symbol, format string, args ...any) error {
	return &sessionError{wire.Errorf(condition, format, args...)}
}

func (c *Conn) begin(channel uint16, old *Session, b *wire.Begin) error {
	switch {
	case b.RemoteChannel.OK:
		return wire.Errorf(wire.NotAllowed, "begin that answers channel %d, where nothing was asked", b.RemoteChannel.V)
	case old != nil:
		return wire.Errorf(wire.IllegalState, "begin on channel %d, which has a session", channel)
	}
	s := &Session{
		conn: c, channel: channel, links: make(map[uint32]*Link), detached: make(map[uint32]bool),
		unsettled:    make(map[uint32]*sent),
		nextIncoming: b.NextOutgoingID, window: c.cfg.SessionWindow, nextOutgoing: sessionStart, remote: b.IncomingWindow,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[channel] = s
	c.writeLocked(channel, &wire.Begin{
		RemoteChannel: wire.Some(channel), NextOutgoingID: sessionStart, IncomingWindow: s.window, OutgoingWindow: 1<<31 - 1,
		HandleMax: c.cfg.HandleMax,
	}, nil)
	return nil
}

// handle handles a frame. A *sessionError ends the session, another error the connection.
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

func (s *Session) end(*wire.End) {
	c := s.conn
	c.mu.Lock()
	delete(c.sessions, s.channel)
	left := s.releaseLocked()
	if !s.ended {
		s.ended = true
		c.writeLocked(s.channel, &wire.End{}, nil)
	}
	c.mu.Unlock()
	for _, l := range left {
		c.handler.Detached(l)
	}
}

// fail ends the session because of a violation.
func (s *Session) fail(e *wire.Error) {
	for _, l := range s.End(e) {
		s.conn.handler.Detached(l)
	}
}

// End ends the session, with an error unless it is nil, and returns the links that were attached.
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
	c.writeLocked(s.channel, &wire.End{Error: e}, nil)
	c.doneLocked()
	return left
}

// releaseLocked removes all links from the session and returns those that were attached, by handle.
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
