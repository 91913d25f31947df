package fault

import (
	"maps"
	"slices"
)

// Faults of a plain broker, which testbroker.Options.Broker makes of a hub. At other hubs they
// never happen. Reason codes, reason strings and AUTH are those of MQTT 5; over MQTT 3.1.1 a
// DISCONNECT is only the end of the connection in order.
const (
	// DisconnectWhileIdle ends the connection Delay after its CONNACK, with a DISCONNECT that has
	// Code, by default 0x8b (server shutting down), Description and ServerReference.
	DisconnectWhileIdle Kind = iota + 60
	// DisconnectOnPublish does the same when a message arrives, which it does not store.
	DisconnectOnPublish
	// RefusePublish does not store the message: the PUBACK has Code, by default 0x97 (quota exceeded),
	// and Description. It happens to messages with QoS 1 over MQTT 5.
	RefusePublish
	// DropOnReceipt cuts the connection with RST when the acknowledgement of a C2D message arrives: a
	// PUBACK, PUBREC or PUBCOMP, which is not handled.
	DropOnReceipt
	// RefuseAuth refuses a secret of enhanced authentication, at the connect by CONNACK, later by
	// DISCONNECT, with Code, by default 0x87 (not authorized), Description and ServerReference.
	RefuseAuth
	// SwallowAuth leaves the secret unanswered.
	SwallowAuth
	// SlowAuth checks the secret after Delay.
	SlowAuth
)

var brokerKinds = map[Kind]row{
	DisconnectWhileIdle: {"DisconnectWhileIdle", mqtt, "Code ServerReference Description Delay",
		Fault{Code: reasonShuttingDown}},
	DisconnectOnPublish: {"DisconnectOnPublish", mqtt, "Code ServerReference Description",
		Fault{Code: reasonShuttingDown}},
	RefusePublish: {"RefusePublish", mqtt, "Code Description", Fault{Code: reasonQuota}},
	DropOnReceipt: {"DropOnReceipt", mqtt, "", none},
	RefuseAuth:    {"RefuseAuth", mqtt, "Code ServerReference Description", Fault{Code: reasonNotAuthorized}},
	SwallowAuth:   {"SwallowAuth", mqtt, "", none},
	SlowAuth:      {"SlowAuth", mqtt, "Delay", none},
}

// BrokerKinds returns every kind of fault that happens only at a plain broker, in a fixed order.
func BrokerKinds() []Kind { return slices.Sorted(maps.Keys(brokerKinds)) }
