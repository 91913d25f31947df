package amqp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// pair is a link out and a link in that belong together: those for the twin, and those for methods.
// They are opened when they are needed first. A goroutine receives as long as they live; another
// one sends while there is something to send. A pair that is lost is opened again, as the link for
// commands is.
type pair struct {
	s       *session
	name    string // begins the correlation id that tells the hub that both belong together
	address string // empty: there is none
	wait    amqp.SenderSettleMode
	take    func(m *amqp.Message)
	opened  func(again bool) // the pair is open, before that is told to those who asked for it; may be nil
	// what was under way is; mu is held, and not when the result is called; may be nil
	lost    func() (tell func())
	given   func(*amqp.Message)           // a message was sent; may be nil
	unsent  func(*amqp.Message, error)    // a message cannot be sent on any link
	refused func(err error) (tell func()) // the pair is not to be had; as lost; may be nil

	// Guarded by session.mu.
	started, attached bool
	sending           bool
	sent              chan struct{} // of those under way: closed when sending is false again
	waiting           []*grant
	queue             []*amqp.Message // requests for the twin, which package device bounds, or methods.answers
	out               *amqp.Sender
	stop              context.CancelFunc // ends receiving on the present links
}

// grant is an OpSubscribe under way. Guarded by session.mu.
type grant struct {
	id   uint32
	left int // so many links are still to be opened
	err  error
}

// settle notes that one of the links is open, or is not to be had, and replies to the request when
// it was the last.
func (s *session) settle(g *grant, err error) {
	s.mu.Lock()
	if g.err == nil {
		g.err = err
	}
	g.left--
	done := g.left == 0 && !s.over
	s.mu.Unlock()
	if done {
		s.cfg.Sink.Reply(g.id, transport.Reply{Err: g.err})
	}
}

// open has the pair opened, if it is not, and g told.
func (p *pair) open(g *grant) {
	s := p.s
	s.mu.Lock()
	attached := p.attached
	if !attached {
		p.waiting = append(p.waiting, g)
		p.startLocked()
	}
	s.mu.Unlock()
	if attached {
		s.settle(g, nil)
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
		p.sending, p.sent = true, make(chan struct{})
		p.s.goLocked(p.flush)
	}
}

// flush sends what is queued, and ends.
func (p *pair) flush() {
	s := p.s
	for {
		s.mu.Lock()
		if len(p.queue) == 0 || !p.attached || s.over {
			p.sending = false
			close(p.sent)
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
			if p.given != nil {
				p.given(m)
			}
		case inTime && !isConn(err) && !isSession(err) && !isLink(err): // it is larger than the hub takes on the link
			p.unsent(m, err)
		default:
			stop() // the pair is lost, and with it what was under way
		}
	}
}

// lastWordsLimit is how long a session that is ended in good order lets out what it was given
// before. The network takes it at once, or is silent.
const lastWordsLimit = 100 * time.Millisecond

// lastWords waits until what was queued is sent.
func (p *pair) lastWords() {
	p.s.mu.Lock()
	sending, sent := p.sending, p.sent
	p.s.mu.Unlock()
	if !sending {
		return
	}
	limit := time.NewTimer(lastWordsLimit)
	defer limit.Stop()
	select {
	case <-sent:
	case <-limit.C:
	case <-p.s.conn.ended():
	}
}

// told tells those who wait for the pair.
func (p *pair) told(err error) {
	s := p.s
	s.mu.Lock()
	waiting := p.waiting
	p.waiting = nil
	tell := func() {}
	if err != nil {
		p.started, p.queue = false, nil // the next one tries anew
		if p.refused != nil {
			tell = p.refused(err)
		}
	}
	s.mu.Unlock()
	for _, g := range waiting {
		s.settle(g, err)
	}
	tell()
}

// run is the goroutine that receives.
func (p *pair) run() {
	s := p.s
	for first := true; ; first = false {
		in, under, err := p.attach()
		switch {
		case s.ctx.Err() != nil || s.conn.gone():
			return
		case err != nil && first:
			e := lossOf(err)
			p.told(failed(transport.OpSubscribe, e.Kind, e.Err))
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
		if p.opened != nil {
			p.opened(!first)
		}
		p.told(nil)
		s.mu.Lock()
		p.flushLocked()
		s.mu.Unlock()
		err = p.receive(ctx, in, out)
		stop()
		s.mu.Lock()
		p.attached, p.queue = false, nil
		over := s.ctx.Err() != nil || isConn(err) || s.conn.gone() // then the session's end tells what is lost
		tell := func() {}
		if p.lost != nil && !over {
			tell = p.lost()
		}
		s.mu.Unlock()
		if over {
			return
		}
		tell()
		if isSession(err) {
			unblockSend(out)
			s.forget(under)
		} else {
			p.close(in)
		}
		e := lossOf(s.conn.explain(err))
		if time.Since(since) < shortLife || aboutOf(e) != moment {
			s.fail(e)
			return
		}
	}
}

// close closes both links, for one may be left when the other is gone.
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

// attach opens both links.
func (p *pair) attach() (in *amqp.Receiver, under *amqp.Session, err error) {
	s := p.s
	properties := maps.Clone(s.opt.linkProperties())
	properties["com.microsoft:channel-correlation-id"] = p.name + ":" + newUUID()
	var out *amqp.Sender
	under, err = s.attach(func(ctx context.Context, under *amqp.Session) (err error) {
		if out, err = under.NewSender(ctx, p.address, &amqp.SenderOptions{SettlementMode: &p.wait,
			Properties: properties}); err != nil {
			return err
		}
		if in, err = under.NewReceiver(ctx, p.address, &amqp.ReceiverOptions{Credit: pairCredit,
			Properties: properties}); err != nil {
			unblockSend(out) // half a pair is of no use, and would stay for as long as the session does
		}
		return err
	})
	s.mu.Lock()
	p.out = out
	s.mu.Unlock()
	return in, under, err
}

// newUUID makes a uuid of version 4 (RFC 9562).
func newUUID() string {
	var u [16]byte
	_, _ = rand.Read(u[:]) // it never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// lookEvery is how often the link out is looked at while nothing comes in. The library does not
// tell that it is lost before something is sent, which a device that only listens never does, and
// without it the hub neither tells of changes nor calls methods. It is the same for a link for
// telemetry that is idle; see idleLinks.
const lookEvery = 10 * time.Second

// receive takes what comes until a link is gone.
func (p *pair) receive(ctx context.Context, in *amqp.Receiver, out *amqp.Sender) error {
	for {
		look, cancel := context.WithTimeout(ctx, lookEvery)
		err := p.receiveUntil(look, in)
		due := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		cancel()
		if due {
			err = lookAt(out)
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
		if bad := brokenMessage(m); bad != nil {
			return bad
		}
		_ = in.AcceptMessage(p.s.ctx, m)
		p.take(m)
	}
}

// unsendable is a message whose tag is too long for the library, which looks at the link first.
var unsendable = &amqp.Message{DeliveryTag: make([]byte, 33)}

// lookAt returns why a link is gone, nil if it is there. Nothing is sent.
func lookAt(out *amqp.Sender) error {
	if err := out.Send(context.Background(), unsendable, nil); isConn(err) || isSession(err) || isLink(err) {
		return err
	}
	return nil
}

// letGo frees who sends on the link, when the session ends.
func (p *pair) letGo() {
	p.s.mu.Lock()
	out := p.out
	p.s.mu.Unlock()
	if out != nil {
		unblockSend(out)
	}
}
