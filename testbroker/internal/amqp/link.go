package amqp

import (
	"errors"
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// The states of a link.
const (
	asked     = iota // an attach was received and not answered
	attached         // both sides have attached
	detaching        // the server has detached; frames are ignored up to the client's detach
	gone
)

// Link is a link. Its unexported fields are guarded by the connection's lock.
type Link struct {
	// Asked is the client's attach. It must not be modified.
	Asked *wire.Attach
	// Answer is the attach with which the link is accepted: an echo of Asked that Handler.Attach may
	// modify.
	Answer *wire.Attach
	// Value belongs to the handler.
	Value any

	session *Session
	handle  uint32 // the same on both sides
	state   int
	count   uint32 // delivery-count
	initial uint32 // delivery-count at the attach of a link on which the server sends
	credit  uint32
	failed  bool // the server has detached with an error

	// Of a link on which the server receives.
	window      uint32    // target of the credit
	needsCredit bool      // in the session's list of links whose credit is to be renewed
	part        *Delivery // used only by the goroutine in Serve, as is size
	size        int       // of the last message

	// Of a link on which the server sends.
	drain, echo bool
}

// Receives reports whether the server receives on the link.
func (l *Link) Receives() bool { return l.Asked.Role == wire.RoleSender }

// Session returns the link's session.
func (l *Link) Session() *Session { return l.session }

func (s *Session) attach(a *wire.Attach) error {
	c := s.conn
	switch {
	case a.Handle > c.cfg.HandleMax:
		return wire.Errorf(wire.FramingError, "handle %d, the highest is %d", a.Handle, c.cfg.HandleMax)
	case a.SndSettleMode > wire.SendMixed, a.RcvSettleMode > wire.ReceiveSecond:
		return broken(wire.InvalidField, "attach with settle modes %d and %d", a.SndSettleMode, a.RcvSettleMode)
	case a.Role == wire.RoleSender && !a.InitialDeliveryCount.OK:
		return broken(wire.InvalidField, "attach of a sender without initial-delivery-count")
	}
	c.mu.Lock()
	if s.links[a.Handle] != nil {
		c.mu.Unlock()
		return broken(wire.HandleInUse, "attach with handle %d, which is in use", a.Handle)
	}
	l := &Link{Asked: a, session: s, handle: a.Handle, count: a.InitialDeliveryCount.V, Answer: answerTo(a)}
	var stolen *Link
	for _, other := range s.links {
		if other.Asked.Name == a.Name && other.Asked.Role == a.Role && other.state == attached {
			stolen = other
		}
	}
	if stolen != nil {
		s.detachLocked(stolen, wire.Errorf(wire.LinkStolen, "link %q was attached again", a.Name), true)
	}
	s.links[a.Handle] = l
	delete(s.detached, a.Handle)
	c.mu.Unlock()
	if stolen != nil {
		c.handler.Detached(stolen)
	}

	var refusal *wire.Error
	err := unsupported(a)
	if err == nil {
		err = c.handler.Attach(l)
	}
	switch {
	case err == nil:
		if l.Accept() {
			c.handler.Attached(l)
		}
	case errors.As(err, &refusal):
		var bare *bareRefusal
		l.refuse(refusal, errors.As(err, &bare))
	case !errors.Is(err, ErrLater):
		return err
	}
	return nil
}

// unsupported refuses features that the server does not support.
func unsupported(a *wire.Attach) error {
	_, transactions := a.Target.(*wire.Coordinator)
	target, _ := a.Target.(*wire.Target)
	switch {
	case transactions:
		return wire.Errorf(wire.NotImplemented, "transactions")
	case a.Source != nil && a.Source.Dynamic, target != nil && target.Dynamic:
		return wire.Errorf(wire.NotImplemented, "dynamic nodes")
	case len(a.Unsettled) > 0, a.IncompleteUnsettled:
		return wire.Errorf(wire.NotImplemented, "links that resume")
	case a.Role == wire.RoleSender && target == nil:
		return wire.Errorf(wire.InvalidField, "attach of a sender without a target")
	case a.Role == wire.RoleReceiver && a.Source == nil:
		return wire.Errorf(wire.InvalidField, "attach of a receiver without a source")
	}
	return nil
}

// answerTo returns an echo of an attach.
func answerTo(a *wire.Attach) *wire.Attach {
	answer := &wire.Attach{
		Name: a.Name, Handle: a.Handle, Role: !a.Role, SndSettleMode: a.SndSettleMode, RcvSettleMode: wire.ReceiveFirst,
		Source: a.Source, Target: a.Target, Properties: a.Properties,
	}
	if a.Role == wire.RoleReceiver {
		answer.RcvSettleMode = a.RcvSettleMode
		answer.InitialDeliveryCount = wire.Some(uint32(0))
	}
	return answer
}

// Accept accepts a link for which Handler.Attach has returned ErrLater. It reports false if the
// attach was answered before or the link has ended. Any goroutine may call it; Handler.Attached is
// not called.
func (l *Link) Accept() bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	ok := l.state == asked && !c.dead
	if ok {
		l.state = attached
		c.writeLocked(l.session.channel, l.Answer, nil)
	}
	c.doneLocked()
	return ok
}

// Refuse answers the attach without the client's terminus, then sends a detach [2.6.3]. See Accept.
func (l *Link) Refuse(e *wire.Error) { l.refuse(e, false) }

// Bare makes the result of Handler.Attach refuse a link without either terminus: some clients
// recognize a refusal only by that.
func Bare(e *wire.Error) error { return &bareRefusal{e} }

type bareRefusal struct{ cause *wire.Error }

func (r *bareRefusal) Error() string { return r.cause.Error() }
func (r *bareRefusal) Unwrap() error { return r.cause }

func (l *Link) refuse(e *wire.Error, bare bool) {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != asked || c.dead {
		return
	}
	l.refuseLocked(e, bare)
	l.state = detaching
	c.doneLocked()
}

func (l *Link) refuseLocked(e *wire.Error, bare bool) {
	answer := answerTo(l.Asked)
	if bare || l.Receives() {
		answer.Target = nil
	}
	if bare || !l.Receives() {
		answer.Source = nil
	}
	l.session.conn.writeLocked(l.session.channel, answer, nil)
	l.session.conn.writeLocked(l.session.channel, &wire.Detach{Handle: l.handle, Closed: true, Error: e}, nil)
}

// detach handles a client's detach. It is answered once.
func (s *Session) detach(d *wire.Detach) error {
	c := s.conn
	c.mu.Lock()
	l := s.links[d.Handle]
	if l == nil {
		c.mu.Unlock()
		return broken(wire.UnattachedHandle, "detach of handle %d", d.Handle)
	}
	delete(s.links, d.Handle)
	s.detached[d.Handle] = l.failed
	before := l.state
	switch before {
	case asked:
		l.refuseLocked(nil, false)
	case attached:
		s.forgetLocked(l)
		s.tellLocked()
		c.writeLocked(s.channel, &wire.Detach{Handle: l.handle, Closed: d.Closed}, nil)
	}
	l.state = gone
	c.mu.Unlock()
	if before == attached {
		c.handler.Detached(l)
	}
	return nil
}

// Detach detaches the link, with an error unless it is nil. closed true is the usual form; clients
// treat false in different ways. It reports whether the link was attached. Handler.Detached is not
// called.
func (l *Link) Detach(e *wire.Error, closed bool) bool {
	c := l.session.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.state != attached || c.dead {
		return false
	}
	l.session.detachLocked(l, e, closed)
	c.doneLocked()
	return true
}

func (s *Session) detachLocked(l *Link, e *wire.Error, closed bool) {
	s.tellLocked()
	s.forgetLocked(l)
	l.state, l.failed = detaching, e != nil
	s.conn.writeLocked(s.channel, &wire.Detach{Handle: l.handle, Closed: closed, Error: e}, nil)
}

// forgetLocked drops the unsettled and queued messages of a link.
func (s *Session) forgetLocked(l *Link) {
	for id, m := range s.unsettled {
		if m.link == l {
			delete(s.unsettled, id)
		}
	}
	s.queue = slices.DeleteFunc(s.queue, func(q queued) bool { return q.link == l })
}

// fault detaches a link because of a violation and calls Handler.Detached.
func (l *Link) fault(condition wire.Symbol, format string, args ...any) error {
	if l.Detach(wire.Errorf(condition, format, args...), true) {
		l.session.conn.handler.Detached(l)
	}
	return nil
}
