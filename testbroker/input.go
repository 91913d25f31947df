package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// SendInput queues a message for an input of a module, which is named "deviceID/moduleID". The hub
// delivers it to a client that has subscribed to the module's inputs, at once or when one does, and
// repeats the delivery until the client settles it. The messages to all inputs of a module are
// delivered in order. The name of an input has 1 to 128 ASCII letters, digits and any of -._ . The
// error is [ErrQueueFull] when the queue is full.
func (h *Hub) SendInput(module, input string, m hubdata.C2D) error {
	return h.hub.SendInput(module, input, m)
}

// InputLog returns the messages to the inputs of modules, named as in [Hub.Connections], grouped by
// module and in the order of their sequence numbers.
func (h *Hub) InputLog(module string) []hubdata.C2DRecord { return h.hub.QueueLog(module, hub.Inputs) }

// CountInputs returns how many messages to inputs of modules, named as in [Hub.Connections], are in
// a state, including those dropped from the log.
func (h *Hub) CountInputs(module string, state hubdata.C2DState) int {
	return h.hub.CountQueued(module, hub.Inputs, state)
}

// WaitInputs waits until at least n messages to inputs of modules, named as in [Hub.Connections],
// are in a state. It fails when the context ends or the hub is closed.
func (h *Hub) WaitInputs(ctx context.Context, module string, state hubdata.C2DState, n int) error {
	return h.hub.Until(ctx, func() bool { return h.CountInputs(module, state) >= n })
}
