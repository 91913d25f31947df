package fault

import (
	"maps"
	"slices"
)

// Faults of a hub with the MQTT v5 connection profile: see testbroker.Options.MQTTv5. At other hubs
// they never happen, except for WrongSessionPresent, which happens at plain brokers too. Those of a
// dispatch happen to messages that the hub is about to send to a device: of the type Message, or of
// any if it is empty. Faults of twins and of methods happen too, with a probe in place of the
// request. So do DisconnectWhileIdle, DisconnectOnPublish, RefusePublish and DropOnReceipt.
const (
	// SwallowDispatch drops the message.
	SwallowDispatch Kind = iota + 600
	// SlowDispatch sends it after Delay. Later ones do not wait.
	SlowDispatch
	// DuplicateDispatch sends it twice.
	DuplicateDispatch
	// MisnameDispatch sends it with other correlation data: Bytes, by default another nonce or request
	// id.
	MisnameDispatch
	// RetypeDispatch sends it with Text as its type, by default with the version 2.
	RetypeDispatch
	// GarbleDispatch sends it with Bytes as its body, by default the beginning of a message.
	GarbleDispatch
	// WrongExpiry sends it with Delay, in whole seconds, as its expiry.
	WrongExpiry
	// OmitExpiry sends it without an expiry.
	OmitExpiry
	// EarlyBirthAck sends a birth-ack with the client's nonce right after the CONNACK. It happens to
	// CONNECT packets.
	EarlyBirthAck
	// WrongSessionPresent inverts the flag in the CONNACK. It happens to CONNECT packets.
	WrongSessionPresent
	// StrictIfMatch refuses a reported patch with if_match 0, which otherwise matches any version. It
	// happens to such patches.
	StrictIfMatch
	// ExecWithoutProbe sends an exec, with a ready id that the device has not given, in place of the
	// probe. It happens to calls of the method Method.
	ExecWithoutProbe
)

var mqttv5Kinds = map[Kind]row{
	SwallowDispatch:     {"SwallowDispatch", mqtt, "Message", none},
	SlowDispatch:        {"SlowDispatch", mqtt, "Message Delay", none},
	DuplicateDispatch:   {"DuplicateDispatch", mqtt, "Message", none},
	MisnameDispatch:     {"MisnameDispatch", mqtt, "Message Bytes", none},
	RetypeDispatch:      {"RetypeDispatch", mqtt, "Message Text", none},
	GarbleDispatch:      {"GarbleDispatch", mqtt, "Message Bytes", none},
	WrongExpiry:         {"WrongExpiry", mqtt, "Message Delay", none},
	OmitExpiry:          {"OmitExpiry", mqtt, "Message", none},
	EarlyBirthAck:       {"EarlyBirthAck", mqtt, "", none},
	WrongSessionPresent: {"WrongSessionPresent", mqtt, "", none},
	StrictIfMatch:       {"StrictIfMatch", mqtt, "", none},
	ExecWithoutProbe:    {"ExecWithoutProbe", mqtt, "Method", none},
}

// MQTTv5Kinds returns every kind of fault that happens only at a hub with the MQTT v5 connection
// profile, in a fixed order.
func MQTTv5Kinds() []Kind { return slices.Sorted(maps.Keys(mqttv5Kinds)) }
