package amqp

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// refSize is the size of a Delivery's Ref: the number under which the message is kept.
const refSize = 4

const (
	// shortLife is the age below which a lost link is not attached again but ends the session, so that
	// the device's retry policy sets the delay.
	shortLife = 5 * time.Second
	// declinedFor is how long a message that the sink declined, or that exceeded maxPartial, is kept
	// before it is released. The hub delivers a released message again at once.
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

	amqp *amqp.Session // owned by the goroutine

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
	sequence uint64    // 0: none
	since    time.Time // of its latest delivery
	releases bool      // it is released after a delay
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
	c.attached, c.unsettled, c.bySequence = false, nil, nil
}

// receive delivers messages until the link is lost.
func (c *c2dLink) receive(link *amqp.Receiver) error {
	s := c.s
	var ref [refSize]byte
	for {
		m, err := link.Receive(s.ctx, nil)
		if err != nil {
			return err
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
			c.releaseAfter(number, declinedFor)
			continue
		}
		binary.BigEndian.PutUint32(ref[:], number)
		message, again := inbound(m, s.opt.Addresses == nil)
		if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: ref[:], Again: again,
			Msg: &message}) {
			c.releaseAfter(number, declinedFor)
		}
	}
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
		c.unsettled[number].message, c.unsettled[number].since = m, time.Now()
	case !c.s.over:
		if c.unsettled == nil {
			c.unsettled, c.bySequence = make(map[uint32]*unsettledMessage), make(map[uint64]uint32)
		}
		c.number++
		number = c.number
		c.unsettled[number] = &unsettledMessage{message: m, sequence: sequence, since: time.Now()}
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

// settle writes the disposition of a message, for Release after a delay. A message that was lost
// with its link is ignored: the hub delivers it again.
func (c *c2dLink) settle(number uint32, o transport.Outcome) {
	s := c.s
	s.mu.Lock()
	u, link := c.unsettled[number], c.link
	switch {
	case u == nil || u.releases:
		s.mu.Unlock()
		return
	case o != transport.OutcomeAccept && o != transport.OutcomeReject:
		u.releases = true // it stays unsettled meanwhile, so that another delivery of it renews the lock
		now := time.Now()
		c.releaseAfter(number, times.ReleaseAt(now, u.since, deliveriesBefore(u.message)).Sub(now))
		s.mu.Unlock()
		return
	}
	c.removeLocked(number)
	s.mu.Unlock()
	if o == transport.OutcomeReject {
		_ = link.RejectMessage(s.ctx, u.message, nil)
		return
	}
	_ = link.AcceptMessage(s.ctx, u.message)
}

// removeLocked removes an unsettled message and returns it, nil if there is none; session.mu held.
func (c *c2dLink) removeLocked(number uint32) *amqp.Message {
	u := c.unsettled[number]
	if u == nil {
		return nil
	}
	delete(c.unsettled, number)
	delete(c.bySequence, u.sequence)
	return u.message
}

// releaseAfter releases a message after a delay, unless the link or the session ends before.
func (c *c2dLink) releaseAfter(number uint32, delay time.Duration) {
	time.AfterFunc(delay, func() {
		s := c.s
		s.mu.Lock()
		defer s.mu.Unlock()
		m, link := c.removeLocked(number), c.link
		if m != nil {
			s.goLocked(func() { _ = link.ReleaseMessage(s.ctx, m) })
		}
	})
}
