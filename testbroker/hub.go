package testbroker

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/amqpfront"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/blobfront"
	"github.com/hubline-iot/hubline/testbroker/internal/httpfront"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqttfront"
	"github.com/hubline-iot/hubline/testbroker/internal/servicefront"
	"github.com/hubline-iot/hubline/testbroker/internal/updates"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// DefaultHostName is the hub's name if Options.HostName is empty.
const DefaultHostName = hub.DefaultHostName

// Hub is an in-memory IoT hub. Make it with [New].
type Hub struct {
	hub  *hub.Hub
	mqtt *mqttfront.Front
	amqp *amqpfront.Front

	updates atomic.Pointer[updates.Service] // linked; nil = none
}

// New makes a hub without devices and without listeners. Nil options mean all defaults.
func New(o *Options) (*Hub, error) {
	settings, dialect, err := o.forHub()
	if err != nil {
		return nil, err
	}
	h, err := hub.New(settings)
	if err != nil {
		return nil, err
	}
	mqtt := mqttfront.New(h, dialect)
	backend.New(h, servicefront.TwinOf)
	servicefront.AddTables(h)
	amqp := amqpfront.New(h)
	all := &Hub{hub: h, mqtt: mqtt, amqp: amqp}
	routes := slices.Concat(httpfront.TelemetryRoutes, httpfront.C2DRoutes, httpfront.InvokeRoutes, servicefront.Routes,
		httpfront.UploadRoutes, blobfront.Routes, httpfront.UpdateRoutes(all.updates.Load))
	h.SetFronts(map[hubdata.Protocol]hub.Front{hubdata.MQTT: mqtt, hubdata.AMQP: amqp, hubdata.HTTP: web.New(h, routes)})
	if err := h.Restore(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return all, nil
}

// HostName returns the hub's name.
func (h *Hub) HostName() string { return h.hub.Host }

// ConnectionProfile returns the hub's connection profile: "mqttV5" with [Options.MQTTv5], otherwise
// "classic".
func (h *Hub) ConnectionProfile() string { return h.hub.Profile() }

// Close cuts all connections, stops all listeners and waits for every goroutine of the hub. The log
// stays readable. The error joins those of closing the listeners. A second Close waits for the
// first and returns nil.
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
func (h *Hub) Devices() []hubdata.Device { return h.hub.Devices() }

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

// Messages returns a copy of the log: all kept messages, in the order in which the hub stored them.
func (h *Hub) Messages() []hubdata.Message { return h.hub.Telemetry.Messages() }

// Len returns how many messages the hub has stored since New or the last [Hub.Reset], including
// forgotten ones.
func (h *Hub) Len() int { return h.hub.Telemetry.Len() }

// Forgotten returns how many stored messages the hub has dropped from the log: none without
// [Options.Keep].
func (h *Hub) Forgotten() int { return h.hub.Telemetry.Forgotten() }

// Conflicts returns the pairs of messages that have the same sender and message id, but different
// bodies. A message is compared with the first one of its id. When that is forgotten, it is
// compared with the last unchanged repetition.
func (h *Hub) Conflicts() []hubdata.Conflict { return h.hub.Telemetry.Conflicts() }

// WaitMessages waits until the hub has stored at least n messages, as counted by [Hub.Len]. It
// fails when the context ends or the hub is closed.
func (h *Hub) WaitMessages(ctx context.Context, n int) error {
	return h.hub.Until(ctx, func() bool { return h.Len() >= n })
}

// Wait waits until ok returns true. It calls ok at once, and again after each change: a stored
// message, a connection that began or ended, a fault that happened, a twin request, a method call
// or answer. ok may call methods of the hub that do not block. It must not modify the log, which
// holds the kept messages; [hubdata.Message.Sequence] is the position of a message among all. Wait
// fails when the context ends or the hub is closed.
func (h *Hub) Wait(ctx context.Context, ok func(log []hubdata.Message) bool) error {
	return h.hub.Wait(ctx, ok)
}
