package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// MaxMessage is the size limit of a message in bytes: body, values of system properties, names and
// values of application properties.
const MaxMessage = hub.MaxMessage

// Property is a name with a value.
type Property = hub.Property

// Message is a telemetry message as stored by the hub.
type Message = hub.Message

const (
	// MaxC2D is the size limit of the body of a C2D message in bytes.
	MaxC2D = hub.MaxC2D
	// MaxMessageID is the length limit of a message id.
	MaxMessageID = hub.MaxMessageID
)

// ErrQueueFull is returned by [Hub.SendC2D] while the device's queue of C2D messages is full.
var ErrQueueFull = hub.ErrQueueFull

// C2D is a cloud-to-device message. Empty fields are absent.
type C2D = hub.C2D

// C2DState is the state of a C2D message.
type C2DState = hub.C2DState

const (
	// Enqueued: it waits for delivery.
	Enqueued = hub.Enqueued
	// Invisible: it was delivered, and is locked until the device acknowledges it or the lock ends.
	Invisible = hub.Invisible
	// Completed: the device acknowledged it, or it was sent to a device that subscribed with QoS 0.
	Completed = hub.Completed
	// Expired: it waited until its expiry.
	Expired = hub.Expired
	// DeadLettered: it was delivered as often as allowed and never acknowledged.
	DeadLettered = hub.DeadLettered
	// Purged: [Hub.PurgeC2D] or [Hub.RemoveDevice] dropped it.
	Purged = hub.Purged
	// Rejected: the device rejected it, which is possible over AMQP and HTTP.
	Rejected = hub.Rejected
)

// C2DRecord is a C2D message with its state.
type C2DRecord = hub.C2DRecord

// SendC2D queues a C2D message for a device, or for a module named "deviceID/moduleID". The hub
// delivers it to a client subscribed to C2D messages, at once or when one subscribes. The error is
// [ErrQueueFull] when the queue is full.
func (h *Hub) SendC2D(id string, m C2D) error { return h.hub.SendC2D(id, m) }

// PurgeC2D drops the C2D messages that wait for a device, named as in [Hub.Connections], and
// returns their number.
func (h *Hub) PurgeC2D(device string) int { return h.hub.PurgeC2D(device) }

// C2DLog returns the C2D messages to a device, named as in [Hub.Connections], grouped by receiver
// and in the order of their sequence numbers.
func (h *Hub) C2DLog(device string) []C2DRecord { return h.hub.C2DLog(device) }

// CountC2D returns how many C2D messages to a device, named as in [Hub.Connections], are in a
// state, including those dropped from the log.
func (h *Hub) CountC2D(device string, state C2DState) int { return h.hub.CountC2D(device, state) }

// WaitC2D waits until at least n C2D messages to a device, named as in [Hub.Connections], are in a
// state. It fails when the context ends or the hub is closed.
func (h *Hub) WaitC2D(ctx context.Context, device string, state C2DState, n int) error {
	return h.hub.WaitC2D(ctx, device, state, n)
}

// ErrQuota is the cause of a connection's end, or of a refusal, when the daily message quota is
// exhausted.
var ErrQuota = hub.ErrQuota
