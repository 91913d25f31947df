package amqp

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// refSize is the size of a Delivery's Ref: the number under which the message is kept.
const refSize = 4

const (
	// shortLife is the life of a link that is not worth opening it again at once: a device's retry
	// policy paces what follows.
	shortLife = 5 * time.Second
	// declinedFor is how long a message that nobody took is kept before the hub gets it back, which
	// delivers it again at once.
	declinedFor = 5 * time.Second
)

// commands receives cloud-to-device messages over one link, which is opened by the first
// OpSubscribe, and again as often as it is lost.
//
// A hub locks what it delivers for a minute, and delivers it again when it was not settled by then,
// although it may wait in this process behind a slow handler. Such a delivery takes the place of
// the former one, by the hub's sequence number, and is not reported again: whoever holds the former
// one settles it with the lock that holds.
type commands struct {
	s *session

	// Of the goroutine.
	declined []declined // in order of due
	under    *amqp.Session

	// Guarded by session.mu.
	started, attached bool
	waiting           []*grant // OpSubscribe to be replied to
	link              *amqp.Receiver
	number            uint32
	unsettled         map[uint32]*held  // at most Config.Queue of them, by credit
	bySequence        map[uint64]uint32 // of those, where the hub gave a sequence number
}

// held is a message that was not settled.
type held struct {
	message  *amqp.Message
	sequence uint64 // 0: none
}

// declined is a message that nobody took.
type declined struct {
	number uint32
	due    time.Time
}

// subscribe has the link opened, if it is not, and g told.
func (c *commands) subscribe(g *grant) {
	s := c.s
	s.mu.Lock()
	attached := c.attached
	if !attached {
		c.waiting = append(c.waiting, g)
		if !c.started {
			c.started = true
			s.goLocked(c.run)
		}
	}
	s.mu.Unlock()
	if attached {
		s.settle(g, nil)
	}
}

// reply answers all OpSubscribe.
func (c *commands) reply(err error, attached bool) {
	s := c.s
	s.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	c.attached = attached
	if err != nil {
		c.started = false // the next OpSubscribe tries anew
	}
	s.mu.Unlock()
	for _, g := range waiting {
		s.settle(g, err)
	}
}

// run is the goroutine.
func (c *commands) run() {
	s := c.s
	for first := true; ; first = false {
		link, err := c.attach()
		switch {
		case s.ctx.Err() != nil || s.conn.gone():
			return
		case err != nil && first:
			e := lossOf(err)
			c.reply(failed(transport.OpSubscribe, e.Kind, e.Err), false)
			return
		case err != nil:
			s.fail(lossOf(err))
			return
		}
		since := time.Now()
		c.reply(nil, true)
		err = c.receive(link)
		c.lose()
		if s.ctx.Err() != nil || isConn(err) {
			return
		}
		if isSession(err) {
			s.forget(c.under)
		}
		err = s.conn.explain(err)
		e := lossOf(err)
		if time.Since(since) < shortLife || aboutOf(e) != moment {
			s.fail(e)
			return
		}
	}
}

// attach opens the link.
func (c *commands) attach() (*amqp.Receiver, error) {
	s := c.s
	var link *amqp.Receiver
	var err error
	c.under, err = s.attach(func(ctx context.Context, under *amqp.Session) (err error) {
		link, err = under.NewReceiver(ctx, s.addr.Commands, &amqp.ReceiverOptions{
			Credit: int32(max(1, s.cfg.Queue)), Properties: s.opt.linkProperties(),
		})
		return err
	})
	s.mu.Lock()
	c.link = link
	s.mu.Unlock()
	return link, err
}

// lose forgets what came over a link that is gone: the hub delivers it again.
func (c *commands) lose() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.attached, c.unsettled, c.bySequence, c.declined = false, nil, nil, nil
}

// receive delivers what comes until the link is gone.
func (c *commands) receive(link *amqp.Receiver) error {
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
		if bad := brokenMessage(m); bad != nil { // for the hub's dead letters, or it would come again and again
			_ = link.RejectMessage(s.ctx, m, &amqp.Error{Condition: amqp.ErrCondDecodeError, Description: bad.Error()})
			continue
		}
		number, known := c.keep(m)
		if known {
			continue
		}
		binary.BigEndian.PutUint32(ref[:], number)
		message, again := inbound(m)
		if !s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Messages, Ref: ref[:], Again: again, Msg: &message}) {
			c.declined = append(c.declined, declined{number, time.Now().Add(declinedFor)})
		}
	}
}

// next waits for a message; nil when it is time to give a declined one back, which it has done
// then.
func (c *commands) next(link *amqp.Receiver) (*amqp.Message, error) {
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

// keep puts a message where settle finds it. known says that it was in hand already.
func (c *commands) keep(m *amqp.Message) (number uint32, known bool) {
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
			c.unsettled, c.bySequence = make(map[uint32]*held), make(map[uint64]uint32)
		}
		c.number++
		number = c.number
		c.unsettled[number] = &held{m, sequence}
		if sequence != 0 {
			c.bySequence[sequence] = number
		}
	}
	link := c.link
	c.s.mu.Unlock()
	if former != nil {
		_ = link.ReleaseMessage(c.s.ctx, former) // for the credit; the hub knows it no more
	}
	return number, known
}

// settle tells the hub what became of a message. The one that was lost with its link comes again
// anyway.
func (c *commands) settle(number uint32, o transport.Outcome) {
	s := c.s
	s.mu.Lock()
	h, link := c.unsettled[number], c.link
	if h != nil {
		delete(c.unsettled, number)
		delete(c.bySequence, h.sequence)
	}
	s.mu.Unlock()
	if h == nil {
		return
	}
	m := h.message
	switch o {
	case transport.Accept:
		_ = link.AcceptMessage(s.ctx, m)
	case transport.Reject:
		_ = link.RejectMessage(s.ctx, m, nil)
	default:
		_ = link.ReleaseMessage(s.ctx, m)
	}
}
