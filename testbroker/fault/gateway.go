package fault

import (
	"maps"
	"slices"
)

// Faults of an edge gateway, which testbroker.Options.Gateway puts in front of a hub. At other hubs
// they never happen.
const (
	// SlowRoute keeps a message in the gateway's store for Delay. Later messages to the hub, or to
	// inputs if its endpoint is one, wait behind it. It happens once for each endpoint of a message.
	SlowRoute Kind = iota + 500
	// ForwardTwice loses the hub's acknowledgement of a message on its way to the gateway, which
	// forwards the message again, once.
	ForwardTwice
	// LoseSettlement loses what a client settles: the PUBACK or the outcome of a message to an input,
	// or of a C2D message. The gateway delivers the message again when its lock ends.
	LoseSettlement
)

var gatewayKinds = map[Kind]row{
	SlowRoute:      {"SlowRoute", all, "Delay", none},
	ForwardTwice:   {"ForwardTwice", all, "", none},
	LoseSettlement: {"LoseSettlement", mqtt | amqp, "", none},
}

// GatewayKinds returns every kind of fault that happens only at a gateway, in a fixed order.
func GatewayKinds() []Kind { return slices.Sorted(maps.Keys(gatewayKinds)) }
