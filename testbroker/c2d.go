package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// SendC2D queues a C2D message for a device, or for a module named "deviceID/moduleID". The hub
// delivers it to a client subscribed to C2D messages, at once or when one subscribes. The error is
// [ErrQueueFull] when the queue is full.
func (h *Hub) SendC2D(id string, m hubdata.C2D) error { return h.hub.SendC2D(id, m) }

// PurgeC2D drops the C2D messages that wait for a device, named as in [Hub.Connections], and
// returns their number.
func (h *Hub) PurgeC2D(device string) int { return h.hub.Purge(device, hub.Commands) }

// C2DLog returns the C2D messages to a device, named as in [Hub.Connections], grouped by receiver
// and in the order of their sequence numbers.
func (h *Hub) C2DLog(device string) []hubdata.C2DRecord { return h.hub.QueueLog(device, hub.Commands) }

// CountC2D returns how many C2D messages to a device, named as in [Hub.Connections], are in a
// state, including those dropped from the log.
func (h *Hub) CountC2D(device string, state hubdata.C2DState) int {
	return h.hub.CountQueued(device, hub.Commands, state)
}

// WaitC2D waits until at least n C2D messages to a device, named as in [Hub.Connections], are in a
// state. It fails when the context ends or the hub is closed.
func (h *Hub) WaitC2D(ctx context.Context, device string, state hubdata.C2DState, n int) error {
	return h.hub.Until(ctx, func() bool { return h.CountC2D(device, state) >= n })
}
