package dialect

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// An Engine is a session of an engine that has no goroutine yet, as Handshake.Perform needs it.
type Engine interface {
	// StandIn replaces the dialect and the sink, and returns those before.
	StandIn(d Session, k transport.Sink) (Session, transport.Sink)
	// Request does what transport.Session.Do does, and Publish what Send does with one message.
	Request(r *transport.Request)
	Publish(m *transport.Message)
	// Packet reads and handles one packet, or returns why there is none. A PUBLISH is handled only if
	// mine says so; any other waits until the session runs. mine is not called when it is nil. The
	// error is a Timeout when there is no packet until then, unless that is zero.
	Packet(mine func(topic []byte, m *transport.Message) bool, until time.Time) error
}

// performance is a Handshake that is performed. It stands in the session for the dialect and for
// the sink, so that its subscription, its message and its answers are like any others.
type performance struct {
	Session
	plan *Handshake
	e    Engine

	granted, published, done bool  // the steps that are complete
	asked                    bool  // Message was written, or there is none: answers count
	err                      error // why one failed
	ref                      []byte
	taken                    bool // an answer waits for its acknowledgement
}

// Perform performs the handshake on a session without goroutines. It returns an *transport.Error,
// or the error of e.Packet.
func (h *Handshake) Perform(e Engine) error {
	p := &performance{plan: h, e: e}
	inner, sink := e.StandIn(p, p)
	p.Session, p.asked = inner, h.Message.Msg == nil
	defer e.StandIn(inner, sink)
	if len(h.Filters) > 0 {
		e.Request(&transport.Request{Op: transport.OpSubscribe, Want: transport.FeatureMessages})
		if err := p.wait(&p.granted); err != nil {
			return err
		}
	}
	if h.Message.Msg != nil {
		e.Publish(h.Message.Msg)
		p.asked = true
		if h.Answer == nil {
			return p.wait(&p.published)
		}
	}
	if h.Answer == nil {
		return nil
	}
	return p.wait(&p.done)
}

// wait handles packets until a step is complete.
func (p *performance) wait(step *bool) error {
	var mine func(topic []byte, m *transport.Message) bool
	if p.plan.Answer != nil && p.asked {
		mine = p.mine
	}
	var until time.Time
	if limit := p.plan.Limit; limit > 0 {
		until = time.Now().Add(limit)
	}
	for !*step && p.err == nil {
		if err := p.e.Packet(mine, until); err != nil {
			return err
		}
		if p.taken {
			p.taken = false
			p.e.Request(&transport.Request{Op: transport.OpSettle, Ref: p.ref})
		}
	}
	return p.err
}

// mine passes a message to Answer.
func (p *performance) mine(topic []byte, m *transport.Message) bool {
	if p.done {
		return false
	}
	mine, done, err := p.plan.Answer(topic, m)
	p.done = done
	if err != nil {
		p.fail(mqttwire.HandshakeError(err))
	}
	return mine
}

// Filters and Publication are those of the handshake.
func (p *performance) Filters(transport.Features) []Filter { return p.plan.Filters }

func (p *performance) Publication(*transport.Message) (Publication, *transport.Error) {
	return p.plan.Message, nil
}

// Take takes an answer.
func (p *performance) Take(sink transport.Sink, _ []byte, d *transport.Delivery) { sink.Deliver(d) }

// Deliver keeps what acknowledges an answer.
func (p *performance) Deliver(d *transport.Delivery) bool {
	p.ref, p.taken = append(p.ref[:0], d.Ref...), true
	return true
}

// Reply is the answer to the subscription.
func (p *performance) Reply(_ uint32, r transport.Reply) {
	p.granted = true
	p.fail(r.Err)
}

// Done is the result of the message.
func (p *performance) Done(_ uint16, err error) {
	p.published = true
	if !errors.Is(err, transport.ErrWritten) {
		p.fail(err)
	}
}

// fail records the first failure.
func (p *performance) fail(err error) {
	if err != nil && p.err == nil {
		p.err = err
	}
}
