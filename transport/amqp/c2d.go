package amqp

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// refSize is the size of a Delivery's Ref: the number under which the message is kept.
const refSize = 4

const (
	// shortLife is the age below which a lost link is not attached again but ends the session, so that
	// the device's retry policy sets the delay.
	shortLife = 5 * time.Second
	// declinedFor is how long a message that the sink declined, or that exceeded the bytes of
	// incomplete messages, is kept at least before it is released. The hub delivers a released message
	// again at once.
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
	attachment

	// Guarded by session.mu.
	number     uint32
	unsettled  map[uint32]*unsettledMessage // at most Config.Queue of them, by credit
	bySequence map[uint64]uint32            // of those with a sequence number
}

type unsettledMessage struct {
	link     *amqpclient.Receiver
	message  amqpclient.Incoming
	sequence uint64    // 0: none
	since    time.Time // of its latest delivery
	releases bool      // it is released after a delay
}

func (c *c2dLink) init(s *session) {
	c.attachment = attachment{s: s, attach: c.attachLink, lost: c.forgetDeliveries}
}

// attachLink attaches the link.
func (c *c2dLink) attachLink(ctx context.Context, on *amqpclient.Session, detached func(error)) (detach func(),
	err error) {
	s := c.s
	l, err := on.NewReceiver(ctx, &amqpclient.ReceiverOptions{Credit: uint32(max(1, s.cfg.Queue)),
		MaxMessageSize: s.opt.maxMessageSize(), Message: c.message, LinkOptions: amqpclient.LinkOptions{
			Address: s.addr.Commands, Properties: s.opt.linkProperties(), Detached: detached}})
	if err != nil {
		return nil, err
	}
	return l.Detach, nil
}

// forgetDeliveries forgets the deliveries of a lost link: the hub delivers their messages again.
// session.mu is held.
func (c *c2dLink) forgetDeliveries() (report func()) {
	c.unsettled, c.bySequence = nil, nil
	return nil
}

// message delivers a message. The reading goroutine calls it.
func (c *c2dLink) message(l *amqpclient.Receiver, m amqpclient.Incoming) {
	s := c.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	if m.Bad != nil && m.Bad.Condition != wire.ResourceLimitExceeded {
		// rejected, since the hub would deliver it again and again
		l.Settle(&m, &wire.Rejected{Error: &wire.Error{Condition: m.Bad.Condition, Description: m.Bad.Error()}})
		return
	}
	if _, ok := message.Body(m.Message); !ok {
		l.Settle(&m, &wire.Rejected{Error: &wire.Error{Condition: wire.NotImplemented, Description: message.NoBody}})
		return
	}
	number, known := c.keep(l, m)
	if known {
		return
	}
	if m.Bad != nil { // there may be room for it later
		c.releaseAfter(number, declinedFor)
		return
	}
	var ref [refSize]byte
	binary.BigEndian.PutUint32(ref[:], number)
	inbound, redelivered := message.Inbound(m.Message, s.opt.Addresses == nil)
	if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureMessages, Ref: ref[:], Redelivered: redelivered,
		Msg: &inbound}) {
		now := time.Now()
		delay := times.ReleaseAt(now, now, message.DeliveriesBefore(m.Message)).Sub(now)
		c.releaseAfter(number, max(delay, declinedFor)) // the hub gives up a message after ten deliveries
	}
}

// keep stores a message for settle. known reports that a former delivery of it was stored.
func (c *c2dLink) keep(l *amqpclient.Receiver, m amqpclient.Incoming) (number uint32, known bool) {
	v, _ := m.MessageAnnotations.Get("x-opt-sequence-number")
	sequence, _ := v.(uint64)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if number, known = c.bySequence[sequence]; known {
		u := c.unsettled[number]
		former := u.message
		u.message, u.since = m, time.Now()
		l.Settle(&former, &wire.Released{}) // returns the credit; the hub has forgotten that delivery
		return number, true
	}
	if c.s.over {
		return 0, false
	}
	if c.unsettled == nil {
		c.unsettled, c.bySequence = make(map[uint32]*unsettledMessage), make(map[uint64]uint32)
	}
	c.number++
	c.unsettled[c.number] = &unsettledMessage{link: l, message: m, sequence: sequence, since: time.Now()}
	if sequence != 0 {
		c.bySequence[sequence] = c.number
	}
	return c.number, false
}

// settle writes the disposition of a message, for Release after a delay. A message that was lost
// with its link is ignored: the hub delivers it again.
func (c *c2dLink) settle(number uint32, o transport.Outcome) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	switch u := c.unsettled[number]; {
	case u == nil || u.releases:
	case o == transport.OutcomeAccept:
		c.settleLocked(number, &wire.Accepted{})
	case o == transport.OutcomeReject:
		c.settleLocked(number, &wire.Rejected{})
	default:
		u.releases = true // it stays unsettled meanwhile, so that another delivery of it renews the lock
		now := time.Now()
		c.releaseAfter(number, times.ReleaseAt(now, u.since, message.DeliveriesBefore(u.message.Message)).Sub(now))
	}
}

// settleLocked writes a disposition, if the message is unsettled. session.mu is held.
func (c *c2dLink) settleLocked(number uint32, state wire.DeliveryState) {
	if u := c.unsettled[number]; u != nil {
		delete(c.unsettled, number)
		delete(c.bySequence, u.sequence)
		u.link.Settle(&u.message, state)
	}
}

// releaseAfter releases a message after a delay, unless the link or the session ends before.
func (c *c2dLink) releaseAfter(number uint32, delay time.Duration) {
	time.AfterFunc(delay, func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.settleLocked(number, &wire.Released{})
	})
}
