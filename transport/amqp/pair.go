package amqp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/amqpscreen"
	"github.com/hubline-iot/hubline/transport"
)

// pair is a sending and a receiving link that belong together: those for the twin, and those for
// methods. They are attached when first needed, and again when one of them is lost. A goroutine
// receives while they live; another one sends while messages are queued.
type pair struct {
	s          *session
	name       string // prefix of the correlation id by which the hub pairs the links
	address    string // empty: no such pair
	settleMode amqp.SenderSettleMode
	onMessage  func(m *amqp.Message)
	onOpen     func()                      // called when both links are attached; may be nil
	onSent     func(m *amqp.Message)       // may be nil
	onUnsent   func(*amqp.Message, error)  // called for a message that no link can send
	onLost     func() (report func())      // called with mu held; report is called without; may be nil
	onRefused  func(error) (report func()) // called when the links cannot be attached; like onLost

	// Guarded by session.mu.
	started, attached bool
	sending           bool
	flushed           chan struct{} // closed when sending is false again
	waiting           []*subscription
	queue             []*amqp.Message // requests for the twin, which package device bounds, or methods.answers
	out               *amqp.Sender
	stop              context.CancelFunc // ends receiving on the present links
}

// subscription is an OpSubscribe without a reply yet. Guarded by session.mu.
type subscription struct {
	id   uint32
	left int // links that are not attached yet
	err  error
}

// subscribed notes that one of the links of a subscription is attached, or cannot be, and replies
// after the last one.
func (s *session) subscribed(sub *subscription, err error) {
	s.mu.Lock()
	if sub.err == nil {
		sub.err = err
	}
	sub.left--
	done := sub.left == 0 && !s.over
	s.mu.Unlock()
	if done {
		s.cfg.Sink.Reply(sub.id, transport.Reply{Err: sub.err})
	}
}

// open attaches the links if needed, and then replies to sub.
func (p *pair) open(sub *subscription) {
	s := p.s
	s.mu.Lock()
	attached := p.attached
	if !attached {
		p.waiting = append(p.waiting, sub)
		p.startLocked()
	}
	s.mu.Unlock()
	if attached {
		s.subscribed(sub, nil)
	}
}

func (p *pair) startLocked() {
	if !p.started {
		p.started = true
		p.s.goLocked(p.run)
	}
}

// sendLocked queues a message. session.mu is held.
func (p *pair) sendLocked(m *amqp.Message) {
	if p.s.over {
		return
	}
	p.queue = append(p.queue, m)
	p.startLocked()
	p.flushLocked()
}

func (p *pair) flushLocked() {
	if p.attached && !p.sending && len(p.queue) > 0 {
		p.sending, p.flushed = true, make(chan struct{})
		p.s.goLocked(p.flush)
	}
}

// flush sends the queued messages, and ends.
func (p *pair) flush() {
	s := p.s
	for {
		s.mu.Lock()
		if len(p.queue) == 0 || !p.attached || s.over {
			p.sending = false
			close(p.flushed)
			s.mu.Unlock()
			return
		}
		m, out, stop := p.queue[0], p.out, p.stop
		p.queue = p.queue[1:]
		s.mu.Unlock()
		ctx, cancel := context.WithTimeoutCause(s.ctx, s.opt.OperationTimeout, errNoAnswer)
		err := out.Send(ctx, m, nil)
		inTime := ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			if p.onSent != nil {
				p.onSent(m)
			}
		case inTime && !amqpconn.IsConn(err) && !amqpconn.IsSession(err) && !amqpconn.IsLink(err):
			// it is larger than the hub takes on the link
			p.onUnsent(m, err)
		default:
			stop() // the pair is lost, and with it all unanswered requests
		}
	}
}

// flushTimeout is how long a session that ends orderly waits for queued messages. A working network
// takes them at once.
const flushTimeout = 100 * time.Millisecond

// waitFlushed waits until the queued messages are sent.
func (p *pair) waitFlushed() {
	p.s.mu.Lock()
	sending, flushed := p.sending, p.flushed
	p.s.mu.Unlock()
	if !sending {
		return
	}
	limit := time.NewTimer(flushTimeout)
	defer limit.Stop()
	select {
	case <-flushed:
	case <-limit.C:
	case <-p.s.conn.Done():
	}
}

// reply replies to all waiting subscriptions.
func (p *pair) reply(err error) {
	s := p.s
	s.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	report := func() {}
	if err != nil {
		p.started, p.queue = false, nil // the next OpSubscribe tries again
		if p.onRefused != nil {
			report = p.onRefused(err)
		}
	}
	s.mu.Unlock()
	for _, sub := range waiting {
		s.subscribed(sub, err)
	}
	report()
}

// run is the goroutine that attaches the links and receives.
func (p *pair) run() {
	s := p.s
	for first := true; ; first = false {
		in, on, err := p.attach()
		switch {
		case s.ctx.Err() != nil || s.conn.Gone():
			return
		case err != nil && first:
			e := lossOf(err)
			p.reply(failed(transport.OpSubscribe, e.Kind, e.Err))
			return
		case err != nil:
			s.fail(lossOf(err))
			return
		}
		since := time.Now()
		ctx, stop := context.WithCancel(s.ctx)
		s.mu.Lock()
		out := p.out
		p.attached, p.stop = true, stop
		s.mu.Unlock()
		if p.onOpen != nil {
			p.onOpen()
		}
		p.reply(nil)
		s.mu.Lock()
		p.flushLocked()
		s.mu.Unlock()
		err = p.receive(ctx, in, out)
		stop()
		if p.detached(err) {
			return
		}
		if amqpconn.IsSession(err) {
			unblockSend(out)
			s.forget(on)
		} else {
			p.close(in)
		}
		e := lossOf(s.conn.Explain(err))
		if time.Since(since) < shortLife || blameOf(e) != blameNone {
			s.fail(e)
			return
		}
	}
}

// detached records the loss of the pair. It returns true when the session ends, which reports the
// loss itself.
func (p *pair) detached(err error) (over bool) {
	s := p.s
	over = s.ctx.Err() != nil || amqpconn.IsConn(err) || s.conn.Gone()
	report := func() {}
	s.mu.Lock()
	p.attached, p.queue = false, nil
	if p.onLost != nil && !over {
		report = p.onLost()
	}
	s.mu.Unlock()
	report()
	return over
}

// close detaches both links, as one may still be attached when the other is lost.
func (p *pair) close(in *amqp.Receiver) {
	ctx, cancel := context.WithTimeout(p.s.ctx, p.s.opt.OperationTimeout)
	defer cancel()
	p.s.mu.Lock()
	out := p.out
	p.s.mu.Unlock()
	_ = out.Close(ctx)
	_ = in.Close(ctx)
}

// pairCredit is how many messages the hub may send ahead.
const pairCredit = 16

// attach attaches both links.
func (p *pair) attach() (in *amqp.Receiver, on *amqp.Session, err error) {
	s := p.s
	properties := maps.Clone(s.opt.linkProperties())
	properties["com.microsoft:channel-correlation-id"] = p.name + ":" + newUUID()
	var out *amqp.Sender
	on, err = s.attach(func(ctx context.Context, on *amqp.Session) (err error) {
		if out, err = on.NewSender(ctx, p.address, &amqp.SenderOptions{SettlementMode: &p.settleMode,
			Properties: properties}); err != nil {
			return err
		}
		if in, err = on.NewReceiver(ctx, p.address, &amqp.ReceiverOptions{Credit: pairCredit,
			MaxMessageSize: s.opt.maxMessageSize(), Properties: properties}); err != nil {
			unblockSend(out) // one link alone is useless, and would exist as long as the session
		}
		return err
	})
	s.mu.Lock()
	p.out = out
	s.mu.Unlock()
	return in, on, err
}

// newUUID makes a uuid of version 4 (RFC 9562).
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// probeInterval is how often a sending link is probed while nothing is received or sent. The
// library does not report its loss before a send, which a device that only listens never does.
// Without the link the hub neither notifies of changes nor calls methods. See also idleLinks.
const probeInterval = 10 * time.Second

// receive handles messages until a link is lost.
func (p *pair) receive(ctx context.Context, in *amqp.Receiver, out *amqp.Sender) error {
	for {
		until, cancel := context.WithTimeout(ctx, probeInterval)
		err := p.receiveUntil(until, in)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			err = probeLink(out)
		}
		if err != nil {
			return err
		}
	}
}

func (p *pair) receiveUntil(ctx context.Context, in *amqp.Receiver) error {
	for {
		m, err := in.Receive(ctx, nil)
		if err != nil {
			return err
		}
		if bad := amqpscreen.ReplacedMessage(m); bad != nil {
			return bad
		}
		_ = in.AcceptMessage(p.s.ctx, m)
		p.onMessage(m)
	}
}

// unsendable is a message whose tag is too long for the library, which checks the link first.
var unsendable = &amqp.Message{DeliveryTag: make([]byte, 33)}

// probeLink returns why a link is lost, nil if it is not. Nothing is sent.
func probeLink(out *amqp.Sender) error {
	if err := out.Send(context.Background(), unsendable, nil); amqpconn.IsConn(err) || amqpconn.IsSession(err) ||
		amqpconn.IsLink(err) {
		return err
	}
	return nil
}

// unblock unblocks a pending Send when the session ends.
func (p *pair) unblock() {
	p.s.mu.Lock()
	out := p.out
	p.s.mu.Unlock()
	if out != nil {
		unblockSend(out)
	}
}
