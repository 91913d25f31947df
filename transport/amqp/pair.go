package amqp

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
)

// pair is a sending and a receiving link that belong together: those for the twin, and those for
// methods.
type pair struct {
	attachment
	name      string // prefix of the correlation id by which the hub pairs the links
	address   string // empty: no such pair
	onMessage func(m *wire.Message)
	onUnsent  func(id uint32, err error) // called for a message that no link can send

	// Guarded by session.mu.
	queue []queued // requests for the twin, which package device bounds, or answers to methods
	out   *amqpclient.Sender
	timer *time.Timer // bounds the wait for credit; nil: no wait yet
	waits bool        // it runs
}

// unsent is a message that cannot be sent.
type unsent struct {
	id  uint32
	err error
}

// queued is a message that is to be sent.
type queued struct {
	id      uint32 // of its request; 0: none
	message []byte
}

func (p *pair) init(s *session, name, address string) {
	p.name, p.address = name, address
	p.attachment.s, p.attachment.attach = s, p.attachBoth
}

// sendLocked queues a message, and sends what can be sent. session.mu is held.
func (p *pair) sendLocked(id uint32, m *wire.Message) (refused []unsent) {
	b, err := wire.AppendMessage(nil, m)
	if err != nil {
		panic("amqp: " + err.Error()) // its texts are numbers, constants and what the hub has sent
	}
	p.queue = append(p.queue, queued{id, b})
	p.startLocked()
	return p.flushLocked()
}

// flushLocked sends queued messages. It returns those that are larger than the hub takes on the
// link, for refuse. session.mu is held.
func (p *pair) flushLocked() (refused []unsent) {
	for p.attached && len(p.queue) > 0 {
		q := p.queue[0]
		if most := p.out.MaxMessageSize(); most > 0 && uint64(len(q.message)) > most {
			refused = append(refused, unsent{q.id, &tooLargeError{len(q.message), most}})
			p.queue = p.queue[1:]
			continue
		}
		switch p.out.Send(0, nil, q.message) {
		case amqpclient.NotBlocked:
			p.queue = p.queue[1:]
			p.stopTimerLocked()
			continue
		case amqpclient.NoCredit, amqpclient.NoWindow:
			p.waitLocked()
		case amqpclient.Gone:
		}
		break
	}
	if len(p.queue) == 0 {
		p.queue = nil
	}
	return refused
}

// refuse reports messages that cannot be sent. session.mu is not held.
func (p *pair) refuse(refused []unsent) {
	for _, q := range refused {
		p.onUnsent(q.id, q.err)
	}
}

// credited sends what waited for credit. The reading goroutine calls it.
func (p *pair) credited() {
	s := p.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	refused := p.flushLocked()
	s.mu.Unlock()
	s.conn.Kick()
	p.refuse(refused)
}

// waitLocked bounds the wait for credit: without it the pair is lost, and with it all unanswered
// requests. session.mu is held.
func (p *pair) waitLocked() {
	if p.waits {
		return
	}
	p.waits = true
	if p.timer == nil {
		p.timer = time.AfterFunc(p.s.opt.OperationTimeout, p.uncredited)
	} else {
		p.timer.Reset(p.s.opt.OperationTimeout)
	}
}

func (p *pair) uncredited() {
	p.s.mu.Lock()
	l, waits := p.life, p.waits
	p.waits = false
	p.s.mu.Unlock()
	if l != nil && waits {
		p.detached(l, errNoAnswer)
	}
}

func (p *pair) stopTimerLocked() {
	if p.waits {
		p.waits = false
		p.timer.Stop()
	}
}

// stopLocked ends the pair: Run has ended. session.mu is held.
func (p *pair) stopLocked() { p.stopTimerLocked() }

// pairCredit is how many messages the hub may send ahead.
const pairCredit = 16

// attachBoth attaches both links.
func (p *pair) attachBoth(ctx context.Context, on *amqpclient.Session, detached func(error)) (detach func(),
	err error) {
	s := p.s
	o := amqpclient.LinkOptions{Address: p.address, Detached: detached, Properties: append(s.opt.linkProperties(),
		wire.Pair{Key: wire.Symbol("com.microsoft:channel-correlation-id"), Value: p.name + ":" + dialer.NewUUID()})}
	out, err := on.NewSender(ctx, &amqpclient.SenderOptions{Settled: true, Credited: p.credited, LinkOptions: o})
	if err != nil {
		return nil, err
	}
	in, err := on.NewReceiver(ctx, &amqpclient.ReceiverOptions{Credit: pairCredit,
		MaxMessageSize: s.opt.maxMessageSize(), Message: p.message, LinkOptions: o})
	if err != nil {
		out.Detach() // one link alone is useless, and would exist as long as the session
		return nil, err
	}
	s.mu.Lock()
	p.out = out
	s.mu.Unlock()
	return func() {
		out.Detach()
		in.Detach()
	}, nil
}

// message handles a message of the hub. The reading goroutine calls it.
func (p *pair) message(in *amqpclient.Receiver, m amqpclient.Incoming) {
	s := p.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	if m.Bad != nil {
		s.mu.Lock()
		l := p.life
		s.mu.Unlock()
		if l == nil { // it is being attached
			s.fail(lossOf(m.Bad))
			return
		}
		p.detached(l, m.Bad)
		return
	}
	in.Settle(&m, &wire.Accepted{})
	p.onMessage(m.Message)
}

// bodyMessage returns a message of one data section.
func bodyMessage(body []byte, correlation any) *wire.Message {
	m := &wire.Message{Data: [][]byte{body}}
	if correlation != nil {
		m.Properties = &wire.Properties{CorrelationID: correlation}
	}
	return m
}
