package amqp

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/transport"
)

// refSize is the size of a Delivery's Ref: the number under which the message is kept.
const refSize = 4

const (
	// shortLife is the age below which a lost link is not attached again but ends the session, so that
	// the device's retry policy sets the delay.
	shortLife = 5 * time.Second
	// declinedFor is how long a declined message is kept before it is released. The hub delivers a
	// released message again at once.
	declinedFor = 5 * time.Second
)

// c2dLink receives cloud-to-device messages. The link is attached by the first OpSubscribe, and
// again whenever it is lost.
//
// A hub locks a delivery for a minute and then delivers the message again, although it may still be
// queued in this process behind a slow handler. The new delivery replaces the former one, by the
// hub's sequence number, and is not reported. The holder of the former one settles the message
// under the valid lock.
type c2dLink struct {
	s *session

	// Owned by the goroutine.
	declined []declinedMessage // ordered by due
	amqp     *amqp.Session

	// Guarded by session.mu.
	started, attached bool
	waiting           []*subscription
	link              *amqp.Receiver
	number            uint32
	unsettled         map[uint32]*unsettledMessage // at most Config.Queue of them, by credit
	bySequence        map[uint64]uint32            // of those with a sequence number
}

type unsettledMessage struct {
	message  *amqp.Message
	sequence uint64 // 0: none
}

// declinedMessage is a message that the sink declined, or one that exceeded maxPartial.
type declinedMessage struct {
	number uint32
	due    time.Time
}

// subscribe attaches the link if needed, and then replies to sub.
func (c *c2dLink) subscribe(sub *subscription) {
	s := c.s
	s.mu.Lock()
	attached := c.attached
	if !attached {
		c.waiting = append(c.waiting, sub)
		if !c.started {
			c.started = true
			s.goLocked(c.run)
		}
	}
	s.mu.Unlock()
	if attached {
		s.subscribed(sub, nil)
	}
}

// reply replies to all waiting subscriptions.
func (c *c2dLink) reply(err error) {
	s := c.s
	s.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.attached = err == nil
	if err != nil {
		c.started = false // the next OpSubscribe tries again
	}
	s.mu.Unlock()
	for _, sub := range waiting {
		s.subscribed(sub, err)
	}
}

// run is the goroutine of the link.
func (c *c2dLink) run() {
	s := c.s
	for first := true; ; first = false {
		link, err := c.attach()
		switch {
		case s.ctx.Err() != nil || s.conn.Gone():
			return
		case err != nil && first:
			e := lossOf(err)
			c.reply(failed(transport.OpSubscribe, e.Kind, e.Err))
			return
		case err != nil:
			s.fail(lossOf(err))
			return
		}
		since := time.Now()
		c.reply(nil)
		err = c.receive(link)
		c.forgetDeliveries()
		if s.ctx.Err() != nil || amqpconn.IsConn(err) {
			return
		}
		if amqpconn.IsSession(err) {
			s.forget(c.amqp)
		}
		err = s.conn.Explain(err)
		e := lossOf(err)
		if time.Since(since) < shortLife || blameOf(e) != blameNone {
			s.fail(e)
			return
		}
	}
}

// attach attaches the link.
func (c *c2dLink) attach() (*amqp.Receiver, error) {
	s := c.s
	var link *amqp.Receiver
	var err error
	c.amqp, err = s.attach(func(ctx context.Context, on *amqp.Session) (err error) {
		link, err = on.NewReceiver(ctx, s.addr.Commands, &amqp.ReceiverOptions{
			Credit: int32(max(1, s.cfg.Queue)), MaxMessageSize: s.opt.maxMessageSize(), Properties: s.opt.linkProperties(),
		})
		return err
	})
	s.mu.Lock()
	c.link = link
	s.mu.Unlock()
	return link, err
}

// forgetDeliveries forgets the deliveries of a lost link: the hub delivers their messages again.
func (c *c2dLink) forgetDeliveries() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.attached, c.unsettled, c.bySequence, c.declined = false, nil, nil, nil
}

// receive delivers messages until the link is lost.
func (c *c2dLink) receive(link *amqp.Receiver) error {
	s := c.s
	var ref [refSize]byte
	for {
		m, err := c.next(link)
		switch {
		case err != nil:
			return err
		case m == nil:
			continue
		}
		bad := amqpscreen.ReplacedMessage(m)
		if bad != nil && bad.Condition != amqp.ErrCondResourceLimitExceeded {
			// rejected, since the hub would deliver it again and again
			_ = link.RejectMessage(s.ctx, m, &amqp.Error{Condition: bad.Condition, Description: bad.Error()})
			continue
		}
		number, known := c.keep(m)
		if known {
			continue
		}
		if bad != nil { // there may be room for it later
			c.decline(number)
			continue
		}
		binary.BigEndian.PutUint32(ref[:], number)
		message, again := inbound(m, s.opt.Addresses == nil)
		if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Messages, Ref: ref[:], Again: again, Msg: &message}) {
			c.decline(number)
		}
	}
}

// decline makes next release a message after declinedFor.
func (c *c2dLink) decline(number uint32) {
	c.declined = append(c.declined, declinedMessage{number, time.Now().Add(declinedFor)})
}

// next waits for a message. It returns nil after it has released a declined one.
func (c *c2dLink) next(link *amqp.Receiver) (*amqp.Message, error) {
	s := c.s
	if len(c.declined) == 0 {
		return link.Receive(s.ctx, nil)
	}
	ctx, cancel := context.WithDeadline(s.ctx, c.declined[0].due)
	defer cancel()
	m, err := link.Receive(ctx, nil)
	if m == nil && ctx.Err() != nil && s.ctx.Err() == nil {
		c.settle(c.declined[0].number, transport.Release)
		c.declined = c.declined[1:]
		return nil, nil
	}
	return m, err
}

// keep stores a message for settle. known reports that a former delivery of it was stored.
func (c *c2dLink) keep(m *amqp.Message) (number uint32, known bool) {
	sequence, _ := m.Annotations["x-opt-sequence-number"].(uint64)
	c.s.mu.Lock()
	number, known = c.bySequence[sequence]
	var former *amqp.Message
	switch {
	case known:
		former = c.unsettled[number].message
		c.unsettled[number].message = m
	case !c.s.over:
		if c.unsettled == nil {
			c.unsettled, c.bySequence = make(map[uint32]*unsettledMessage), make(map[uint64]uint32)
		}
		c.number++
		number = c.number
		c.unsettled[number] = &unsettledMessage{m, sequence}
		if sequence != 0 {
			c.bySequence[sequence] = number
		}
	}
	link := c.link
	c.s.mu.Unlock()
	if former != nil {
		_ = link.ReleaseMessage(c.s.ctx, former) // returns the credit; the hub has forgotten that delivery
	}
	return number, known
}

// settle writes the disposition of a message. A message that was lost with its link is ignored: the
// hub delivers it again.
func (c *c2dLink) settle(number uint32, o transport.Outcome) {
	s := c.s
	s.mu.Lock()
	u, link := c.unsettled[number], c.link
	if u != nil {
		delete(c.unsettled, number)
		delete(c.bySequence, u.sequence)
	}
	s.mu.Unlock()
	if u == nil {
		return
	}
	switch o {
	case transport.Accept:
		_ = link.AcceptMessage(s.ctx, u.message)
	case transport.Reject:
		_ = link.RejectMessage(s.ctx, u.message, nil)
	default:
		_ = link.ReleaseMessage(s.ctx, u.message)
	}
}
