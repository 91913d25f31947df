package amqpclient

import (
	"context"
	"crypto/rand"
	"slices"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// LinkOptions are for links of both directions.
type LinkOptions struct {
	// Name is the link's name. Empty: a random one.
	Name string
	// Address is that of the peer's end.
	Address string
	// Properties are sent in the attach.
	Properties wire.Map
	// Detached is called when the peer has ended the attached link or its session, with a
	// *ConditionError. It is not called for the loss of the connection.
	Detached func(error)
}

// link is the end of a link on this side. Its fields are guarded by Conn.mu.
type link struct {
	s        *Session
	name     string
	handle   uint32 // of this side
	peer     uint32 // the peer's handle
	sender   *Sender
	receiver *Receiver
	notify   func(error)   // LinkOptions.Detached
	opened   chan struct{} // closed when the peer has answered the attach
	err      error         // why it is gone, or the peer refused it

	answered  bool // the peer has sent its attach
	refused   bool // by that attach: only a detach may follow
	detaching bool // this side has sent a detach, or sends it when the attach is answered
	gone      bool

	count, credit uint32 // delivery-count and link-credit
	maxSize       uint64 // bytes of a message; 0: any
}

// attach attaches a link; attached waits for the peer's answer.
func (l *link) attach(s *Session, o *LinkOptions, a *wire.Attach) error {
	l.s, l.name, l.notify, l.opened = s, o.Name, o.Detached, make(chan struct{})
	if l.name == "" {
		l.name = rand.Text()
	}
	c := s.c
	c.mu.Lock()
	if s.ended || s.ending {
		defer c.mu.Unlock()
		if s.err == nil {
			return &ConditionError{What: "session"}
		}
		return s.err
	}
	at := slices.Index(s.links, nil)
	if at < 0 {
		at = len(s.links)
		s.links = append(s.links, nil)
	}
	s.links[at], l.handle = l, uint32(at)
	a.Name, a.Handle, a.Role, a.Properties = l.name, l.handle, l.receiver != nil, o.Properties
	s.writeLocked(a)
	c.kickLocked()
	c.mu.Unlock()
	return nil
}

// attached waits for the peer's attach. On error the link is detached.
func (l *link) attached(ctx context.Context) error {
	c := l.s.c
	err := c.waitFor(ctx, l.opened)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		return l.err
	}
	l.detachLocked()
	c.kickLocked()
	return err
}

// NewPair attaches a Sender and a Receiver at once, which saves a round trip. After an error, such
// as a *ConditionError for a link that the peer refuses, the caller must end the session.
func (s *Session) NewPair(ctx context.Context, out *SenderOptions, in *ReceiverOptions) (*Sender, *Receiver, error) {
	sender, err := s.attachSender(out)
	if err != nil {
		return nil, nil, err
	}
	receiver, err := s.attachReceiver(in)
	if err == nil {
		err = sender.attached(ctx)
	}
	if err == nil {
		err = receiver.attached(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	return sender, receiver, nil
}

// detachLocked detaches the link, when its attach is answered. mu is held.
func (l *link) detachLocked() {
	if l.detaching || l.gone || l.refused {
		return
	}
	l.detaching = true
	l.forgetLocked()
	if l.answered && !l.s.ending {
		l.writeDetachLocked()
	}
}

// writeDetachLocked writes a detach. mu is held.
func (l *link) writeDetachLocked() {
	l.s.writeLocked(&wire.Detach{Handle: l.handle, Closed: true})
	l.s.c.kickLocked()
}

// forgetLocked forgets what was sent and received on the link. mu is held.
func (l *link) forgetLocked() {
	s := l.s
	for i := range s.out {
		if s.out[i].link == l {
			s.out[i] = delivering{}
		}
	}
	s.trimLocked()
	s.queue = slices.DeleteFunc(s.queue, func(q queued) bool { return q.link == l })
	if l.receiver != nil {
		l.receiver.dropLocked()
	}
}

// goneLocked records the end of the link by the peer. mu is held.
func (l *link) goneLocked(why error, after *calls) {
	l.forgetLocked()
	l.gone, l.err = true, why
	switch {
	case !isClosed(l.opened):
		close(l.opened)
	case !l.detaching && l.notify != nil:
		after.add(func() { l.notify(why) })
	}
}

// detach detaches the link.
func (l *link) detach() {
	c := l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	l.detachLocked()
}

// notAttached is the problem text for an unknown handle.
const notAttached = "is %d, to which no link is attached"

// attachedLocked handles the peer's attach. A max-message-size of the sender is ignored, and so is
// its wish that this side settles second: the receiver decides [2.6.12, 2.7.3]. mu is held.
func (s *Session) attachedLocked(f *inFrame) *Violation {
	const name, handle, role, source, target, initialCount, maxMessageSize = 0, 1, 2, 5, 6, 9, 10
	if s.byPeer(f.uint32(handle)) != nil {
		return f.broken(handle, "is %d, which is in use", f.uint32(handle))
	}
	for _, l := range s.links {
		receives := l != nil && l.receiver != nil
		if l == nil || l.answered || receives == f.isTrue(role) || l.name != string(f.text(name)) {
			continue
		}
		l.answered, l.peer = true, f.uint32(handle)
		if l.refused = receives && f.null(source) || !receives && f.null(target); l.refused {
			return nil
		}
		if receives {
			l.count = f.uint32(initialCount)
		} else {
			l.maxSize = f.all[maxMessageSize].number
		}
		if l.detaching {
			l.writeDetachLocked()
			return nil
		}
		close(l.opened)
		if receives {
			s.writeFlowLocked(l)
		}
		return nil
	}
	return f.unsupported(name, "is not that of a link that is being attached: links are attached by this side only")
}

// detachedLocked handles the peer's detach, which is answered in kind. mu is held.
func (s *Session) detachedLocked(f *inFrame, after *calls) *Violation {
	const handle, closed, failure = 0, 1, 2
	l := s.byPeer(f.uint32(handle))
	if l == nil {
		return f.broken(handle, notAttached, f.uint32(handle))
	}
	if !l.detaching || l.refused {
		s.writeLocked(&wire.Detach{Handle: l.handle, Closed: f.isTrue(closed)})
	}
	s.links[l.handle] = nil
	l.goneLocked(f.condition("link", failure), after)
	s.creditedLocked(after) // the deliveries of l may have held up others
	return nil
}
