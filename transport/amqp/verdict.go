package amqp

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// verdict returns the error of a message by its outcome, nil if the hub accepted it, and the object
// of the outcome. A condition that is not listed is about the message.
func verdict(state wire.DeliveryState) (*transport.Error, blame) {
	switch state := state.(type) {
	case nil, *wire.Accepted:
		return nil, blameNone
	case *wire.Rejected:
		c := amqpclient.ConditionOf("message", state.Error)
		kind, about := amqpclient.Conditions[c.Condition], blames[c.Condition]
		if kind == transport.Unknown {
			about = blameMessage
		}
		return failed(transport.OpSend, kind, c), about
	case *wire.Released:
		return failed(transport.OpSend, transport.Unavailable, errReleased), blameNone
	case *wire.Modified:
		if state.UndeliverableHere {
			return failed(transport.OpSend, transport.Forbidden, errUndeliverable), blameMessage
		}
		return failed(transport.OpSend, transport.Unavailable, errModified), blameNone
	}
	return failed(transport.OpSend, transport.Unavailable, errNoOutcome), blameNone
}

var (
	errReleased      = errors.New("the hub did not take the message (released)")
	errModified      = errors.New("the hub did not take the message (modified)")
	errUndeliverable = errors.New("the hub cannot deliver the message on this link (modified, undeliverable here)")
	errNoOutcome     = errors.New("the hub settled the message without a final outcome")
)
