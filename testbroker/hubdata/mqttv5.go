package hubdata

import "time"

// MQTTv5Options give a hub the MQTT v5 connection profile: devices speak MQTT 5 alone, on topics
// below "ih/{deviceId}", with twins and methods in protobuf, after a birth handshake. Registry,
// twins, methods, log, waits and faults are those of other hubs. Such a hub has no modules, no C2D
// messages and no uploads. The zero value of each field means its default.
//
// Devices authenticate with certificates alone. A port without TLS has none: there the client id
// of a registered device is enough.
type MQTTv5Options struct {
	// Topics are the templates of the one topic group: at most 10 topics to which devices may also
	// publish. {deviceId} stands for the device, and "*" as the last level for any levels. Default:
	// none.
	Topics []string
	// Routes are topic filters: what a device publishes on a matching topic goes to the endpoint
	// compatible with Event Hubs. Other messages are acknowledged and go nowhere: see
	// [Message.Unrouted]. Nil routes everything. The service has no route at first.
	Routes []string
	// NarrowFilters grants filters within the one of the device too. Default: they are refused.
	NarrowFilters bool

	// The following are limits that the hub announces and enforces.

	// SessionExpiry, in whole seconds, is the longest session expiry interval. Default: 8 hours. It is
	// the default of clients too, if it is less than an hour; otherwise that is an hour.
	SessionExpiry time.Duration
	// KeepAlive, in whole seconds, replaces that of the client.
	KeepAlive time.Duration
	// ReceiveMaximum is how many messages may wait for their PUBACK. Default: 65535.
	ReceiveMaximum uint16
	// MaximumPacketSize is the largest packet in bytes. Default: enough for [MaxMessage].
	MaximumPacketSize uint32
}
