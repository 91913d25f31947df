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
	// DefaultHostName is the hub's name when Options do not give one.
	DefaultHostName = hub.DefaultHostName
	// DefaultTokenGrace is how long after its expiry a token is still good, when Options do not say.
	DefaultTokenGrace = hub.DefaultTokenGrace
)

var (
	// ErrClosed is returned by calls that a closed hub cannot serve any more.
	ErrClosed = hub.ErrClosed
	// ErrDropped is the cause of a connection's end by [Hub.Drop].
	ErrDropped = hub.ErrDropped
	// ErrReset is the cause of a connection's end by [Hub.Reset].
	ErrReset = hub.ErrReset
	// ErrReplaced is the cause of a connection's end by a newer one of the same identity.
	ErrReplaced = hub.ErrReplaced
	// ErrDisabled is why a disabled device is refused, and the cause of the end of its connection.
	ErrDisabled = hub.ErrDisabled
	// ErrRemoved is the cause of a connection's end by [Hub.RemoveDevice].
	ErrRemoved = hub.ErrRemoved
	// ErrTokenExpired is the cause of a connection's end with its token.
	ErrTokenExpired = hub.ErrTokenExpired
	// ErrParted is the cause of a connection's end by a DISCONNECT of the client.
	ErrParted = hub.ErrParted
)

// Hub is an IoT hub in memory. Make it with [New].
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
// can still be read. A second Close waits for the first.
func (h *Hub) Close() error { return h.hub.Close() }

// Connections returns how many connections are established, that is, were accepted by CONNACK, or
// over AMQP opened, and have not ended. The device is a device id, which includes its modules, or
// "deviceID/moduleID", or empty for all. A connection over AMQP counts for each device that was
// authenticated on it, and so does one over HTTP from the first such request on.
func (h *Hub) Connections(device string) int { return h.hub.Connections(device) }

// Drop cuts, by RST, the connections of a device, named as in [Hub.Connections]; empty means all,
// also those without a CONNECT. It returns how many it cut.
func (h *Hub) Drop(device string) int { return h.hub.Drop(device) }

// Devices returns the registry: devices and their modules, by name.
func (h *Hub) Devices() []Device { return h.hub.Devices() }

// CloseConnections ends, in good order, the connections of a device, named as in [Hub.Connections].
// A connection over AMQP that acts for others as well lives on for them. It returns how many there
// were. See [Hub.Drop] for an end by RST.
func (h *Hub) CloseConnections(device string) int { return h.hub.CloseConnections(device) }

// Reset makes the hub as it was when it was new, but for the registry, the keys and policies, the
// certificates and the ports, which stay. It cuts all connections by RST, waits for their end,
// removes the faults, and empties the logs, queues, twins and the store of files. Until it is
// through the hub refuses connections. Calls of methods that are under way go on without a client.
// A second Reset at the same time waits for the first.
func (h *Hub) Reset() { h.hub.Reset() }

// EventKind says what an [Event] is about.
type EventKind = hub.EventKind

const (
	// Connected: a client was authenticated; its CONNACK is about to be sent. Over AMQP, where a
	// connection can have many devices, it was told of one more of them. Over HTTP, a request was the
	// first of its device on a connection that was authenticated.
	Connected = hub.Connected
	// Refused: a client got a CONNACK with another code than 0, or was cut off without one. Over
	// AMQP: its SASL outcome, put-token or attach was refused, or it was cut off before one was
	// accepted. Over HTTP: a request was not authenticated, named nothing that the hub has, or the
	// connection ended before a request was served.
	Refused = hub.Refused
	// Disconnected: a connection that was Connected has ended, or lost the right to act for a device.
	Disconnected = hub.Disconnected
	// FaultFired: a declared fault has happened.
	FaultFired = hub.FaultFired
	// FaultObeyed: a fault that a device asked for by a message has happened.
	FaultObeyed = hub.FaultObeyed
	// MessageStored: telemetry was added to the log. Its sender has no acknowledgement yet.
	MessageStored = hub.MessageStored
	// TwinRequested: a client has asked about its twin, and what that comes to is decided. The answer
	// is about to be sent.
	TwinRequested = hub.TwinRequested
	// TwinChanged: a back end has changed desired properties or tags. Who listens is about to be told.
	TwinChanged = hub.TwinChanged
	// MethodCalled: a back end has called a method. It is about to be delivered, if the device is
	// there.
	MethodCalled = hub.MethodCalled
	// MethodAnswered: a client has answered a method.
	MethodAnswered = hub.MethodAnswered
	// MethodFailed: a call has ended without an answer that counts.
	MethodFailed = hub.MethodFailed
	// C2DChanged: a C2D message has come into a state, the first of which is Enqueued. Those of one
	// device are told in order.
	C2DChanged = hub.C2DChanged
	// UploadChanged: an upload was begun, or has ended. One whose time runs out is reported only if
	// that was by a fault or [Hub.ExpireUploads].
	UploadChanged = hub.UploadChanged
	// FaultDeclared and FaultRemoved: [Hub.Inject] and [Injected.Remove] were called.
	FaultDeclared = hub.FaultDeclared
	FaultRemoved  = hub.FaultRemoved
	// HubReset: [Hub.Reset] is through.
	HubReset = hub.HubReset
)

// Event is something that happened at the hub. Fields that a kind has nothing to say in are zero.
type Event = hub.Event

// Conflict is a pair of messages that one sender gave the same message id although their bodies
// differ. A sender that repeats a message after a loss must repeat it unchanged.
type Conflict = hub.Conflict

// Messages returns a copy of the log: all messages that are kept, in the order in which the hub
// stored them.
func (h *Hub) Messages() []Message { return h.hub.Messages() }

// Len returns how many messages the hub has stored since it was new or [Hub.Reset], those included
// that it has forgotten.
func (h *Hub) Len() int { return h.hub.Len() }

// Forgotten returns how many messages the hub has stored, but does not keep: none without
// [Options.Keep].
func (h *Hub) Forgotten() int { return h.hub.Forgotten() }

// Conflicts returns the pairs of messages that have the same sender and message id, but not the
// same body. A message is compared with the first one of its id; when that is forgotten, with the
// last one that repeated it unchanged.
func (h *Hub) Conflicts() []Conflict { return h.hub.Conflicts() }

// WaitMessages waits until the hub has stored at least n messages, as [Hub.Len] counts them. It
// fails when the context ends or the hub is closed.
func (h *Hub) WaitMessages(ctx context.Context, n int) error { return h.hub.WaitMessages(ctx, n) }

// Wait waits until ok returns true. It is asked at once, and again after each change: a message
// stored, a connection that came or went, a fault that fired, a request about a twin, a method
// called or answered. It may call methods of the hub that do not wait; it must not modify the log
// it is given, which has what is kept: [Message.Sequence] tells the places of messages among all.
// Wait fails when the context ends or the hub is closed.
func (h *Hub) Wait(ctx context.Context, ok func(log []Message) bool) error {
	return h.hub.Wait(ctx, ok)
}
