package testbroker

import (
	"context"
	"fmt"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/internal/amqpfront"
	"github.com/hubline-iot/hubline/testbroker/internal/blobfront"
	"github.com/hubline-iot/hubline/testbroker/internal/httpfront"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
	"github.com/hubline-iot/hubline/testbroker/internal/servicefront"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

const (
	// DefaultHostName is the hub's name if Options.HostName is empty.
	DefaultHostName = hub.DefaultHostName
	// DefaultTokenGrace is how long an expired token is still accepted if Options.TokenGrace is zero.
	DefaultTokenGrace = hub.DefaultTokenGrace
)

var (
	// ErrClosed is returned by calls on a closed hub.
	ErrClosed = hub.ErrClosed
	// ErrDropped is the cause of a connection's end when [Hub.Drop] ended it.
	ErrDropped = hub.ErrDropped
	// ErrReset is the cause of a connection's end when [Hub.Reset] ended it.
	ErrReset = hub.ErrReset
	// ErrReplaced is the cause of a connection's end when a newer one of the same identity replaced
	// it.
	ErrReplaced = hub.ErrReplaced
	// ErrDisabled is the cause of refusing a disabled device, and of ending its connection.
	ErrDisabled = hub.ErrDisabled
	// ErrRemoved is the cause of a connection's end when [Hub.RemoveDevice] removed the device.
	ErrRemoved = hub.ErrRemoved
	// ErrTokenExpired is the cause of a connection's end when its token expired.
	ErrTokenExpired = hub.ErrTokenExpired
	// ErrParted is the cause of a connection's end when the client sent DISCONNECT.
	ErrParted = hub.ErrParted
)

// Hub is an in-memory IoT hub. Make it with [New].
type Hub struct {
	hub  *hub.Hub
	amqp *amqpfront.Front
}

// New makes a hub without devices and without listeners. Nil options mean all defaults.
func New(o *Options) (*Hub, error) {
	h, err := hub.New(o)
	if err != nil {
		return nil, err
	}
	mqtt, err := mqttfront.New(h)
	if err != nil {
		return nil, fmt.Errorf("testbroker: %w", err)
	}
	amqp := amqpfront.New(h)
	routes := slices.Concat(httpfront.TelemetryRoutes, httpfront.C2DRoutes, servicefront.Routes,
		httpfront.UploadRoutes, blobfront.Routes)
	h.SetFronts(map[Protocol]hub.Front{MQTT: mqtt, AMQP: amqp, HTTP: web.New(h, routes)})
	return &Hub{h, amqp}, nil
}

// HostName returns the hub's name.
func (h *Hub) HostName() string { return h.hub.HostName() }

// Close cuts all connections, stops all listeners and waits for every goroutine of the hub. The log
// stays readable. A second Close waits for the first.
func (h *Hub) Close() error { return h.hub.Close() }

// Connections returns how many connections are established: accepted by CONNACK, or opened over
// AMQP, and not ended. The device is a device id, which includes its modules, or
// "deviceID/moduleID", or empty for all. A connection over AMQP counts for each device
// authenticated on it. A connection over HTTP does so too, from the device's first authenticated
// request on.
func (h *Hub) Connections(device string) int { return h.hub.Connections(device) }

// Drop cuts, with RST, the connections of a device, named as in [Hub.Connections]; empty means all,
// including those without a CONNECT. It returns how many it cut.
func (h *Hub) Drop(device string) int { return h.hub.Drop(device) }

// Devices returns the registry: devices and their modules, by name.
func (h *Hub) Devices() []Device { return h.hub.Devices() }

// CloseConnections ends in order the connections of a device, named as in [Hub.Connections], and
// returns their number. A connection over AMQP that also serves other devices stays open for them.
// [Hub.Drop] ends connections with RST.
func (h *Hub) CloseConnections(device string) int { return h.hub.CloseConnections(device) }

// Reset restores the state of a new hub, except for the registry, the keys and policies, the
// certificates and the ports. It cuts all connections with RST, waits for their end, removes the
// faults, and empties the logs, queues, twins and the blob store. The hub refuses connections until
// Reset has finished. Open method calls continue without a client. A concurrent Reset waits for the
// first.
func (h *Hub) Reset() { h.hub.Reset() }

// EventKind is the kind of an [Event].
type EventKind = hub.EventKind

const (
	// Connected: a client was authenticated; its CONNACK is about to be sent. Over AMQP, a connection
	// can have many devices and has an event for each. Over HTTP, it is a device's first authenticated
	// request on a connection.
	Connected = hub.Connected
	// Refused: a client got a CONNACK with a code other than 0, or was cut off without one. Over AMQP:
	// its SASL outcome, put-token or attach was refused, or it was cut off before one was accepted.
	// Over HTTP: a request was not authenticated or named an unknown resource, or the connection ended
	// before a request was served.
	Refused = hub.Refused
	// Disconnected: a connection that was Connected has ended, or lost the right to serve a device.
	Disconnected = hub.Disconnected
	// FaultFired: a declared fault has happened.
	FaultFired = hub.FaultFired
	// FaultObeyed: a fault that a device requested with a message has happened.
	FaultObeyed = hub.FaultObeyed
	// MessageStored: telemetry was added to the log. It is not acknowledged yet.
	MessageStored = hub.MessageStored
	// TwinRequested: a client's twin request was executed or refused. The answer is about to be sent.
	TwinRequested = hub.TwinRequested
	// TwinChanged: a back end has changed desired properties or tags. Listeners are about to be
	// notified.
	TwinChanged = hub.TwinChanged
	// MethodCalled: a back end has called a method. The call is about to be delivered, if the device
	// is connected.
	MethodCalled = hub.MethodCalled
	// MethodAnswered: a client has answered a method.
	MethodAnswered = hub.MethodAnswered
	// MethodFailed: a call has ended without an accepted answer.
	MethodFailed = hub.MethodFailed
	// C2DChanged: a C2D message has entered a state, the first of which is Enqueued. The events of one
	// device are in order.
	C2DChanged = hub.C2DChanged
	// UploadChanged: an upload has begun or ended. An expiry is reported only if a fault or
	// [Hub.ExpireUploads] caused it.
	UploadChanged = hub.UploadChanged
	// FaultDeclared and FaultRemoved: [Hub.Inject] and [Injected.Remove] were called.
	FaultDeclared = hub.FaultDeclared
	FaultRemoved  = hub.FaultRemoved
	// HubReset: [Hub.Reset] has finished.
	HubReset = hub.HubReset
)

// Event is something that happened at the hub. Fields that a kind does not use are zero.
type Event = hub.Event

// Conflict is a pair of messages of one sender with the same message id but different bodies. A
// sender that repeats a message after a loss must repeat it unchanged.
type Conflict = hub.Conflict

// Messages returns a copy of the log: all kept messages, in the order in which the hub stored them.
func (h *Hub) Messages() []Message { return h.hub.Messages() }

// Len returns how many messages the hub has stored since New or the last [Hub.Reset], including
// forgotten ones.
func (h *Hub) Len() int { return h.hub.Len() }

// Forgotten returns how many stored messages the hub has dropped from the log: none without
// [Options.Keep].
func (h *Hub) Forgotten() int { return h.hub.Forgotten() }

// Conflicts returns the pairs of messages that have the same sender and message id, but different
// bodies. A message is compared with the first one of its id. When that is forgotten, it is
// compared with the last unchanged repetition.
func (h *Hub) Conflicts() []Conflict { return h.hub.Conflicts() }

// WaitMessages waits until the hub has stored at least n messages, as counted by [Hub.Len]. It
// fails when the context ends or the hub is closed.
func (h *Hub) WaitMessages(ctx context.Context, n int) error { return h.hub.WaitMessages(ctx, n) }

// Wait waits until ok returns true. It calls ok at once, and again after each change: a stored
// message, a connection that began or ended, a fault that happened, a twin request, a method call
// or answer. ok may call methods of the hub that do not block. It must not modify the log, which
// holds the kept messages; [Message.Sequence] is the position of a message among all. Wait fails
// when the context ends or the hub is closed.
func (h *Hub) Wait(ctx context.Context, ok func(log []Message) bool) error {
	return h.hub.Wait(ctx, ok)
}
