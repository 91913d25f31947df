package amqpfront

import (
	"errors"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// Credit sends what waits for it.
func (a *conn) Credit(link *amqp.Link) {
	l := link.Value.(*hubLink)
	if l.to != nil {
		l.to.q.Kick()
		return
	}
	l.post.flush(l)
}

// Settled is told what a client says of a C2D message. Replies go settled, or nobody cares.
func (a *conn) Settled(link *amqp.Link, tag []byte, state wire.DeliveryState) wire.DeliveryState {
	l := link.Value.(*hubLink)
	if l.to == nil {
		return state
	}
	return l.to.settle(string(tag), state)
}

// Message hands a message to what the link leads to.
func (a *conn) Message(link *amqp.Link, d amqp.Delivery) error {
	l := link.Value.(*hubLink)
	switch {
	case l.kind == hub.LinkCBSSender:
		return a.putToken(l, d)
	case l.kind == hub.LinkTelemetry:
		return a.telemetry(l, d)
	}
	m, err := readMessage(d)
	if err == nil {
		err = a.ask(l, m)
	}
	l.settle(d, err)
	return nil
}

// settle answers a message: accepted, or rejected if there is an error. One that was sent settled
// has no such answer: the link is detached.
func (l *hubLink) settle(d amqp.Delivery, err *wire.Error) {
	switch {
	case err == nil && !d.Settled:
		l.Settle(d.ID, &wire.Accepted{})
	case err != nil && !d.Settled:
		l.Settle(d.ID, &wire.Rejected{Error: err})
	case err != nil:
		l.detach(err, true)
	}
}

// readMessage reads a message that is not a batch.
func readMessage(d amqp.Delivery) (*wire.Message, *wire.Error) {
	if d.Format != 0 {
		return nil, wire.Errorf(wire.NotImplemented, "message format 0x%x", d.Format)
	}
	m, err := wire.DecodeMessage(d.Payload)
	if err != nil {
		return nil, asWire(err)
	}
	return m, nil
}

func asWire(err error) *wire.Error {
	var e *wire.Error
	if errors.As(err, &e) {
		return e
	}
	return wire.Errorf(wire.InternalError, "%v", err)
}
