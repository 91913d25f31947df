package hubdata

import "time"

// BrokerOptions make a hub a plain MQTT broker. Its devices speak MQTT 3.1.1 or MQTT 5 on topics of
// a template; registry, log, C2D queues, waits and faults are those of a hub. The zero value of
// each field means its default.
//
// A device connects with its id as the user name, a module with "deviceID/moduleID", and one of its
// keys, or a token signed with one, as the password. Without a user name the client id names the
// device. A device has one connection and one session at a time.
//
// A C2D message waits for the device, not for its session. The broker delivers it to a matching
// subscription, and again when the device connects without having acknowledged it. The queue holds
// 1000 messages, without an end of locks and without a limit of deliveries, unless [C2DOptions] say
// otherwise.
type BrokerOptions struct {
	// Telemetry is the filter of the topics to which a device may publish, Commands that of those
	// to which it may subscribe. In both, {device} stands for the device id, for a module
	// "deviceID/moduleID". A C2D message without a topic is sent to Commands without "/#".
	// Defaults: "devices/{device}/up/#" and "devices/{device}/down/#".
	Telemetry, Commands string
	// Password, unless empty, is the password of all devices, with any user name. The client id
	// then names the device.
	Password string
	// Anonymous accepts registered devices without a password and without a certificate.
	Anonymous bool
	// CommandQoS is the QoS of C2D messages, 1 or 2. A subscription can lower it. Default: 1.
	CommandQoS byte

	// The following are limits that the broker announces over MQTT 5 and enforces.

	// ReceiveMaximum is how many messages may wait for their PUBACK. Default: 65535.
	ReceiveMaximum uint16
	// MaximumPacketSize is the largest packet in bytes. Default: enough for [MaxMessage].
	MaximumPacketSize uint32
	// AtMostOnce allows only QoS 0. By default QoS 0 and 1 are allowed.
	AtMostOnce bool
	// TopicAliases is the highest topic alias. Default: none.
	TopicAliases uint16
	// KeepAlive, in whole seconds, replaces that of the client.
	KeepAlive time.Duration
	// SessionExpiry, in whole seconds, is the longest session expiry interval. Default: no limit.
	SessionExpiry time.Duration
	// NoRetain, NoWildcards, NoShared and NoSubscriptionIDs refuse retained messages, wildcards in
	// filters, shared subscriptions and subscription identifiers.
	NoRetain, NoWildcards, NoShared, NoSubscriptionIDs bool
}
