package amqp

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// verdict returns the error of a message by its outcome, nil if the hub accepted it, and the object
// of the outcome. A condition that is not listed is about the message.
func verdict(state wire.DeliveryState) (*transport.Error, amqpclient.Blame) {
	switch state := state.(type) {
	case *wire.Accepted:
		return nil, amqpclient.BlameNone
	case *wire.Rejected:
		c := amqpclient.ConditionOf("message", state.Error)
		kind, about := amqpclient.Conditions[c.Condition], amqpclient.Blames[c.Condition]
		if kind == transport.Unknown {
			about = amqpclient.BlameMessage
		}
		return failed(transport.OpSend, kind, c), about
	case *wire.Released:
		return failed(transport.OpSend, transport.Unavailable, errReleased), amqpclient.BlameNone
	case *wire.Modified:
		if state.UndeliverableHere {
			return failed(transport.OpSend, transport.Forbidden, errUndeliverable), amqpclient.BlameMessage
		}
		return failed(transport.OpSend, transport.Unavailable, errModified), amqpclient.BlameNone
	}
	// Settled without a terminal state means the source's default outcome, and this side's has none
	// [3.4, 3.5.3]: the message may have been lost.
	return operr.OutcomeUnknown(failed(transport.OpSend, transport.Unavailable, errNoOutcome)), amqpclient.BlameNone
}

var (
	errReleased      = errors.New("the hub did not take the message (released)")
	errModified      = errors.New("the hub did not take the message (modified)")
	errUndeliverable = errors.New("the hub cannot deliver the message on this link (modified, undeliverable here)")
	errNoOutcome     = errors.New("the hub settled the message without a final outcome")
)
