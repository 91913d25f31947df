package amqpfront

import (
	"errors"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// Credit sends messages that wait for credit.
func (a *conn) Credit(link *amqp.Link) {
	l := link.Value.(*hubLink)
	switch {
	case l.back != nil:
		l.back.credit()
	case l.to != nil:
		l.to.q.Kick()
	default:
		l.post.flush(l)
	}
}

// Settled handles a client's state of a C2D message or of a message to a back end. The state of
// other messages is ignored.
func (a *conn) Settled(link *amqp.Link, tag []byte, state wire.DeliveryState) wire.DeliveryState {
	l := link.Value.(*hubLink)
	switch {
	case l.back != nil:
		return l.back.settled(tag, state)
	case l.to == nil:
		return state
	}
	return l.to.settle(string(tag), state)
}

// Message passes a message to the handler of the link's kind.
func (a *conn) Message(link *amqp.Link, d amqp.Delivery) error {
	l := link.Value.(*hubLink)
	switch {
	case l.back != nil:
		return l.back.message(d)
	case l.kind == fault.LinkCBSSender:
		return a.putToken(l, d)
	case l.kind == fault.LinkTelemetry:
		return a.telemetry(l, d)
	}
	m, err := readMessage(d)
	if err == nil {
		err = a.ask(l, m)
	}
	l.settle(d, err)
	return nil
}

// settle accepts a message, or rejects it if there is an error. A message sent settled cannot be
// rejected: the link is detached instead.
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

// readMessage parses a message that is not a batch.
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
