package amqpclient

import (
	"context"
	"encoding/binary"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// SenderOptions are the options of a Sender.
type SenderOptions struct {
	LinkOptions
	// Settled: messages are sent settled; there are no outcomes.
	Settled bool
	// Credited is called when messages may be sent again. Nil: never.
	Credited func()
}

// Sender is a link on which this side sends.
type Sender struct {
	link
	settled  bool
	credited func()
	waiting  bool // Credited is called with the next credit
}

// Delivery is a message that a Sender sends. The reading goroutine calls Settled with its outcome,
// nil if the peer says none.
type Delivery interface {
	Settled(state wire.DeliveryState)
}

// NewSender attaches a Sender. If the peer refuses it, the error is a *ConditionError.
func (s *Session) NewSender(ctx context.Context, o *SenderOptions) (*Sender, error) {
	l, err := s.attachSender(o)
	if err == nil {
		err = l.attached(ctx)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// attachSender writes the attach of a Sender.
func (s *Session) attachSender(o *SenderOptions) (*Sender, error) {
	l := &Sender{settled: o.Settled, credited: o.Credited}
	l.sender = l
	a := &wire.Attach{SndSettleMode: wire.SendMixed, Source: &wire.Source{}, Target: &wire.Target{Address: o.Address},
		InitialDeliveryCount: wire.Some(uint32(0))}
	if o.Settled {
		a.SndSettleMode = wire.SendSettled
	}
	if err := l.attach(s, &o.LinkOptions, a); err != nil {
		return nil, err
	}
	return l, nil
}

// MaxMessageSize returns the size of the largest message that the peer takes; 0: any.
func (l *Sender) MaxMessageSize() uint64 { return l.maxSize }

// Detach detaches the link. It does not wait, and Detached is not called any more.
func (l *Sender) Detach() { l.detach() }

// Blocked says why no message can be sent now.
type Blocked uint8

// The reasons, the most lasting first. Credited is called when the last two end.
const (
	NotBlocked Blocked = iota
	Gone               // the link has ended
	NoWindow           // the session's window is closed
	NoCredit           // the link has no credit
)

// Send appends a message in one or more parts, to be written by Flush, unless it is blocked.
// Without a delivery, or on a link with Settled, the message is settled.
func (l *Sender) Send(format uint32, d Delivery, parts ...[]byte) Blocked {
	s, c := l.s, l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case l.gone || l.detaching || s.ending || c.err != nil || c.unsent != nil || c.closing:
		return Gone
	case s.window == 0 || len(s.queue) > 0 || len(s.out) >= maxUnsettled:
		l.waiting = true
		return NoWindow
	case l.credit == 0:
		l.waiting = true
		return NoCredit
	}
	l.credit--
	l.count++
	id := s.first + uint32(len(s.out))
	if l.settled {
		d = nil
	}
	var one delivering
	if d != nil {
		one = delivering{&l.link, d}
	}
	if s.out = append(s.out, one); d == nil {
		s.trimLocked()
	}
	l.appendLocked(id, format, d == nil, parts)
	return NotBlocked
}

// appendLocked appends the frames of a message. mu is held.
func (l *Sender) appendLocked(id, format uint32, settled bool, parts [][]byte) {
	s, c := l.s, l.s.c
	left := 0
	for _, p := range parts {
		left += len(p)
	}
	var tag [4]byte
	binary.BigEndian.PutUint32(tag[:], id)
	head := wire.TransferHead{Channel: s.channel, Handle: l.handle, ID: id, Tag: tag[:], Format: format, Settled: settled}
	c.out.grow(left + (left/(c.frame-wire.MaxTransferHead)+1)*wire.MaxTransferHead)
	for first := true; first || left > 0; first = false {
		n := min(left, c.frame-wire.MaxTransferHead)
		left -= n
		head.More, head.Continues = left > 0, !first
		to := c.out.pending
		waits := s.window == 0 // it had room for the first frame
		if waits {
			to = make([]byte, 0, n+wire.MaxTransferHead)
		}
		begin := len(to)
		to = head.Append(to)
		for n > 0 {
			k := min(n, len(parts[0]))
			to = append(to, parts[0][:k]...)
			if parts[0] = parts[0][k:]; len(parts[0]) == 0 {
				parts = parts[1:]
			}
			n -= k
		}
		wire.EndFrame(to[begin:])
		if waits {
			s.queue = append(s.queue, queued{&l.link, to})
			continue
		}
		c.out.pending = to
		s.countLocked()
	}
}

// flowLocked handles the credit in a flow. Without one the link keeps its credit. mu is held.
func (l *Sender) flowLocked(f *inFrame, after *calls) {
	const deliveryCount, linkCredit = 5, 6
	if !f.null(linkCredit) {
		seen := uint32(0) // the initial delivery-count
		if !f.null(deliveryCount) {
			seen = f.uint32(deliveryCount)
		}
		l.credit = rest(f.uint32(linkCredit), l.count-seen)
	}
	if l.credit > 0 {
		l.creditedLocked(after)
	}
}

// drain gives the rest of the credit back, for a peer that drains the link.
func (l *Sender) drain() {
	s, c := l.s, l.s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.gone || l.detaching || s.ending {
		return
	}
	l.count += l.credit
	l.credit = 0
	s.writeFlowLocked(&l.link)
	c.kickLocked()
}

// creditedLocked calls Credited if a message waits. mu is held.
func (l *Sender) creditedLocked(after *calls) {
	if l.waiting && l.credit > 0 && l.credited != nil {
		l.waiting = false
		after.add(l.credited)
	}
}
