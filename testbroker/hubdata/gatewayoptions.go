package hubdata

import "time"

// GatewayOptions put an edge gateway in front of a hub, as the runtime of an edge device is. All
// clients then connect to the gateway: devices of the field, and the modules of the edge device.
// The zero value of each field but Name means its default.
//
// The gateway's certificate is for its own name; user names and tokens name the hub. It
// acknowledges telemetry once it has stored it, and passes it on along its routes: to the hub,
// whose log testbroker.Hub.Messages returns, and to inputs of modules, stamped with the sender's
// names. A client has at most 16 unacknowledged messages, which [C2DOptions.Window] of
// testbroker.Options.Inputs and testbroker.Options.C2D can change, over AMQP too.
// testbroker.Hub.SetOffline and testbroker.Hub.StopGateway cut the gateway off and stop it. Its
// store, in memory, outlives both; only [GatewayOptions.TTL] bounds it.
//
// Methods of the Hub other than these are those of the hub in the cloud. Back ends that speak HTTPS
// use the same ports as the clients, so a stopped gateway refuses them too.
type GatewayOptions struct {
	// Name is the gateway's host name, in its certificate and in connection strings. It is
	// required.
	Name string
	// DeviceID is the edge device, whose modules routes name. Default: the device of the sender, if
	// it has such a module, otherwise the first one that has.
	DeviceID string
	// Routes say where messages go, in the form of the edge runtime, without conditions:
	//
	//	FROM /messages/* INTO $upstream
	//	FROM /messages/modules/MODULE/outputs/OUTPUT INTO BrokeredEndpoint("/modules/MODULE/inputs/INPUT")
	//
	// Other sources are /*, /messages/modules/*, /messages/modules/MODULE/* and
	// /messages/modules/MODULE/outputs/*. A message takes every route that matches, and reaches
	// each endpoint once. A message without a route is dropped. Default: "FROM /messages/* INTO
	// $upstream".
	Routes []string
	// TTL is how long the store keeps a message to the hub. Default: 2 hours.
	TTL time.Duration
	// Clients is how many connections may be established at a time. More are refused, with CONNACK
	// 3 or the condition "amqp:resource-limit-exceeded". Default: 100.
	Clients int
	// KeepAlive is the longest keep-alive of MQTT. Default: 10 minutes.
	KeepAlive time.Duration
}
