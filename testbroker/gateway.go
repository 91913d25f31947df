package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// ErrNoGateway is returned by calls that need [Options.Gateway].
var ErrNoGateway = hub.ErrNoGateway

// GatewayName returns the name of the gateway; empty without [Options.Gateway].
func (h *Hub) GatewayName() string { return h.hub.GatewayName() }

// GatewayState returns the state of the gateway; the zero value without [Options.Gateway].
func (h *Hub) GatewayState() hubdata.Gateway { return h.hub.GatewayState() }

// Stored returns how many messages to the hub wait in the gateway's store.
func (h *Hub) Stored() int { return h.hub.GatewayState().Stored }

// SetOffline cuts the gateway off from the hub, or connects it again. Clients stay connected. While
// the gateway is off-line:
//
//   - It acknowledges telemetry and stores it. Routes to inputs work.
//   - It answers twin requests from its copies. When the gateway is on-line again, the hub gets the
//     patches of reported properties, merged into one, and listeners get the changes of desired
//     properties, as one change with the newest version.
//   - C2D messages wait in the hub. What clients settle counts at once.
//   - [Hub.CallMethod] fails with code 404103, and answers to earlier calls are lost. Calls by
//     modules work.
//
// On-line again, the gateway forwards what it has stored in order. The error is [ErrNoGateway] or
// nil. A repeated call does nothing.
func (h *Hub) SetOffline(offline bool) error { return h.hub.SetOffline(offline) }

// StopGateway stops the gateway: it cuts all connections with RST and refuses new ones on all
// ports. It forwards nothing. The store, the copies of twins, kept MQTT sessions and queues
// survive. Ports stay open, as for the fault Absent. The error is [ErrNoGateway] or nil. A repeated
// call does nothing.
func (h *Hub) StopGateway() error { return h.hub.StopGateway() }

// StartGateway starts the gateway again. The error is [ErrNoGateway] or nil.
func (h *Hub) StartGateway() error { return h.hub.StartGateway() }
