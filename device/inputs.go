package device

import (
	"errors"
	"slices"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/linked"
	"github.com/hubline-iot/hubline/transport"
)

// HandleInput registers handle for the messages that come by one input of a module, as an edge
// gateway routes them. Names of inputs are compared exactly. What HandleMessages says holds here as
// well. The handlers of all inputs and that of HandleMessages are called one at a time, in the
// order of delivery over all inputs, so one that is slow delays the others. Another call for the
// same input replaces its handler, and nil removes it. A handler that sends a message on copies its
// Body, Properties and System (see MessageHandler).
//
// The handler of HandleMessages gets the messages of inputs without a handler of their own. Without
// it, a module with a handler for any other input rejects such a message in its turn: over AMQP the
// gateway drops it, and over MQTT, which cannot reject, it is acknowledged. Stats.InputsUnhandled
// counts it and Trace.InputUnhandled names the input. It is not kept back, because a gateway sends
// 16 messages before the first one is settled (EdgeHub's MaxPendingInboundAcknowledgements), over
// all inputs. For the same reason Options.Inbox should not be below 16, and a handler that releases
// messages over MQTT stops the module's inputs after 16 of them, until the next connection. When
// the last handler is removed, messages wait as after HandleMessages(nil).
//
// A client subscribes to all inputs when it has any handler. Over HTTPS there are no inputs, and
// HandleInput fails with Unsupported. With another dialect of MQTT than dialect.Hub messages have
// no Input, and go to the handler of HandleMessages. A device has no inputs either: the error is
// Invalid if the credentials have no ModuleID.
func (c *Client) HandleInput(input string, handle MessageHandler) error {
	if c.creds.ModuleID == "" {
		return &transport.Error{Kind: transport.Invalid, Op: transport.OpSubscribe,
			Err: errors.New("a device has no inputs; give credentials with a ModuleID, or use HandleMessages")}
	}
	if e := c.lacks(transport.FeatureMessages, transport.OpSubscribe); e != nil && handle != nil {
		return e
	}
	linked.SetInputs()
	b := c.theInbox()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setInputLocked(input, handle)
	b.startLocked()
	c.poke()
	return nil
}

// inputHandler is the handler of one input. It is not nil.
type inputHandler struct {
	input  string
	handle MessageHandler
}

// setInputLocked sets, replaces or removes the handler of an input.
func (b *inbox) setInputLocked(input string, handle MessageHandler) {
	at := slices.IndexFunc(b.inputs, func(x inputHandler) bool { return x.input == input })
	switch {
	case handle == nil && at >= 0:
		b.inputs = slices.Delete(b.inputs, at, at+1)
	case handle == nil:
	case at >= 0:
		b.inputs[at].handle = handle
	default:
		b.inputs = append(b.inputs, inputHandler{input, handle})
	}
}

// handlerLocked returns the handler for p, and sets p.unhandled.
func (b *inbox) handlerLocked(p *delivery) MessageHandler {
	handle := b.handle
	for i := range b.inputs {
		if b.inputs[i].input == p.msg.Input {
			handle = b.inputs[i].handle
			break
		}
	}
	p.unhandled = handle == nil
	return handle
}

// refuse traces a message that no handler is for, and returns its outcome.
func (b *inbox) refuse(p *delivery) transport.Outcome {
	if t := b.trace; t != nil && t.InputUnhandled != nil {
		_ = callback.Run("Trace.InputUnhandled", func() { t.InputUnhandled(p.msg.Input) })
	}
	return transport.OutcomeReject
}
