package amqpclient

import (
	"context"
	"errors"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/scrub"
)

const (
	// maxMessage is the size of the largest message.
	maxMessage = 16 << 20
	// maxPartial is how many bytes of incomplete messages a connection keeps.
	maxPartial = 2 * maxMessage
)

// ReceiverOptions are the options of a Receiver.
type ReceiverOptions struct {
	LinkOptions
	// Target is the address of this side's end. Empty: none.
	Target string
	// Credit is how many messages may be unsettled or on their way.
	Credit uint32
	// MaxMessageSize is sent to the peer; 0: none, and 16 MiB is the limit here.
	MaxMessageSize uint64
	// Message is called by the reading goroutine, and must not block.
	Message func(*Receiver, Incoming)
}

// Incoming is a message of the peer. It has a place in the credit until it is settled.
type Incoming struct {
	*wire.Message
	// Bad says why the message was not kept; its Condition is that of the outcome. Message is empty
	// then.
	Bad     *Violation
	id      uint32
	settled bool // by the peer
}

// Receiver is a link on which this side receives.
type Receiver struct {
	link
	message   func(*Receiver, Incoming)
	unsettled map[uint32]struct{} // that this side has to settle
	freed     uint32              // places in the credit that the peer does not know of
	partial   *partial            // nil: none
}

// partial is a delivery before its last transfer.
type partial struct {
	id      uint32
	settled bool // by one of the transfers so far
	payload []byte
	bad     *Violation // why the payload is not kept; nil: it is
}

// NewReceiver attaches a Receiver. If the peer refuses it, the error is a *ConditionError.
func (s *Session) NewReceiver(ctx context.Context, o *ReceiverOptions) (*Receiver, error) {
	l, err := s.attachReceiver(o)
	if err == nil {
		err = l.attached(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// attachReceiver writes the attach of a Receiver.
func (s *Session) attachReceiver(o *ReceiverOptions) (*Receiver, error) {
	l := &Receiver{message: o.Message, unsettled: make(map[uint32]struct{})}
	l.receiver, l.credit, l.maxSize = l, o.Credit, maxMessage
	if o.MaxMessageSize > 0 {
		l.maxSize = min(maxMessage, o.MaxMessageSize)
	}
	target := &wire.Target{}
	if o.Target != "" {
		target.Address = o.Target
	}
	a := &wire.Attach{SndSettleMode: wire.SendMixed, Source: &wire.Source{Address: o.Address}, Target: target,
		MaxMessageSize: o.MaxMessageSize}
	if err := l.attach(s, &o.LinkOptions, a); err != nil {
		return nil, err
	}
	return l, nil
}

// Detach detaches the link. It does not wait, and Detached is not called any more.
func (l *Receiver) Detach() { l.detach() }

// Settle appends the outcome of a message, to be written by another goroutine. It does nothing when
// the link has ended. A message that the peer has settled only gives its place back.
func (l *Receiver) Settle(m *Incoming, state wire.DeliveryState) {
	s, c := l.s, l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.gone || l.detaching || s.ending {
		return
	}
	if !m.settled {
		if _, ok := l.unsettled[m.id]; !ok {
			return
		}
		delete(l.unsettled, m.id)
		s.writeLocked(&wire.Disposition{Role: wire.RoleReceiver, First: m.id, Last: wire.Some(m.id), Settled: true,
			State: state})
	}
	l.freeLocked()
	c.kickLocked()
}

// freeLocked gives a place in the credit back. The peer learns of it when as many are free as it
// has left. mu is held.
func (l *Receiver) freeLocked() {
	if l.freed++; l.freed >= l.credit {
		l.credit += l.freed
		l.freed = 0
		l.s.writeFlowLocked(&l.link)
	}
}

// dropLocked drops the incomplete message and forgets the unsettled ones. mu is held.
func (l *Receiver) dropLocked() {
	l.dropPartialLocked()
	clear(l.unsettled)
}

func (l *Receiver) dropPartialLocked() {
	if l.partial != nil {
		l.s.c.partial -= len(l.partial.payload)
		l.partial = nil
	}
}

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

// transferLocked handles a transfer. mu is held.
func (s *Session) transferLocked(f *inFrame, after *calls) *Violation {
	s.incoming++
	if s.room--; s.room <= incomingWindow/2 {
		s.writeFlowLocked(nil)
	}
	l := s.byPeer(f.uint32(transferHandle))
	switch {
	case l == nil:
		return f.broken(transferHandle, notAttached, f.uint32(transferHandle))
	case l.receiver == nil || l.refused:
		return f.broken(transferHandle, "is %d, that of a link on which the peer does not send", f.uint32(transferHandle))
	}
	r := l.receiver
	if bad := r.beginLocked(f); bad != nil || l.detaching {
		return bad
	}
	d := r.partial
	d.settled = d.settled || f.isTrue(transferSettled)
	switch {
	case f.isTrue(transferAborted):
		r.dropPartialLocked()
		r.countLocked()
		r.freeLocked()
	case f.isTrue(transferMore):
		r.keepLocked(f.payload)
	default:
		if d.bad == nil {
			d.bad = r.checkSize(len(d.payload) + len(f.payload))
		}
		payload := f.payload
		if len(d.payload) > 0 {
			payload = append(d.payload, payload...)
		}
		r.s.c.partial -= len(d.payload)
		r.partial = nil
		r.countLocked()
		if !d.settled {
			r.unsettled[d.id] = struct{}{}
		}
		after.add(func() { r.deliver(d, payload) })
	}
	return nil
}

// countLocked counts a delivery that is complete. mu is held.
func (l *Receiver) countLocked() {
	l.count++
	l.credit--
}

// deliver passes a message on. Its payload is decoded here, without the lock.
func (l *Receiver) deliver(d *partial, payload []byte) {
	m := Incoming{Message: new(wire.Message), Bad: d.bad, id: d.id, settled: d.settled}
	if m.Bad == nil {
		decoded, err := wire.DecodeTolerant(payload)
		if err != nil {
			m.Bad = badMessage(err)
		} else {
			m.Message = decoded
		}
	}
	l.message(l, m)
}

// badMessage returns the violation for a message that cannot be decoded.
func badMessage(err error) *Violation {
	text := err.Error()
	if e, ok := errors.AsType[*wire.Error](err); ok {
		text = e.Description
	}
	return &Violation{fault: faultEncoding, path: "message", problem: scrub.Peer(text), Condition: wire.DecodeError}
}

// beginLocked checks a transfer against the earlier frames, and begins the delivery if it is the
// first. mu is held.
func (l *Receiver) beginLocked(f *inFrame) *Violation {
	s, id := l.s, f.uint32(transferID)
	switch {
	case f.isTrue(transferResume):
		return f.broken(transferResume, "is set, and no delivery is to be resumed")
	case l.partial != nil && !f.null(transferID) && id != l.partial.id:
		return f.broken(transferID, "is %d before the end of delivery %d", id, l.partial.id)
	case l.partial != nil:
		return nil
	case l.detaching: // nobody wants it, and it may be the rest of a delivery that was dropped
		if !f.null(transferID) && (!s.any || id == s.next) {
			s.any, s.next = true, id+1
		}
		return nil
	case f.null(transferID):
		return f.broken(transferID, "is missing")
	case f.null(transferTag):
		return f.broken(transferTag, "is missing")
	case s.any && id != s.next:
		return f.broken(transferID, "is %d, not %d", id, s.next)
	case l.credit == 0:
		return f.broken(transferHandle, "is %d, that of a link without credit", f.uint32(transferHandle))
	}
	s.any, s.next = true, id+1
	l.partial = &partial{id: id}
	return nil
}

// keepLocked keeps a part of the incomplete message, unless the message is too large. mu is held.
func (l *Receiver) keepLocked(part []byte) {
	d, c := l.partial, l.s.c
	if d.bad != nil {
		return
	}
	d.bad = l.checkSize(len(d.payload) + len(part))
	if d.bad == nil && c.partial+len(part) > maxPartial {
		d.bad = unsupported("message", "is one of several incomplete ones, of %d bytes together", c.partial+len(part))
		d.bad.Condition = wire.ResourceLimitExceeded
	}
	if d.bad != nil {
		c.partial -= len(d.payload)
		d.payload = nil
		return
	}
	c.partial += len(part)
	d.payload = append(d.payload, part...)
}

// checkSize checks the size of a message that may be incomplete.
func (l *Receiver) checkSize(n int) *Violation {
	if uint64(n) <= l.maxSize {
		return nil
	}
	bad := unsupported("message", "has more than %d bytes", l.maxSize)
	bad.Condition = wire.MessageSizeExceeded
	return bad
}
