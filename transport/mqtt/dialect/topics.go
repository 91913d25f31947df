package dialect

import (
	"github.com/hubline-iot/hubline/transport"
)

// Topics is the dialect of a broker that is no hub: a map of topics. Mosquitto, EMQX, HiveMQ, NATS,
// RabbitMQ and others take any map that their access rules allow.
//
//	&dialect.Topics{Telemetry: "site/{device}/up", Commands: []string{"site/{device}/down/#"}}
//
// In ClientID, the topics and the filters "{device}" and "{module}" stand for the ids of the
// credentials. Each dial checks all fields, before it connects, and fails with Invalid and the name
// of the first wrong one. Topics must not be changed once a transport has them.
//
// Credentials.UserName and the token, which is the password, go into CONNECT; transport.FixedToken
// makes a Token of a password. Without both the device is anonymous, or a client certificate
// authenticates it.
//
// There is no twin and there are no methods: calls about them, HandleDesired and HandleMethod fail
// with Unsupported. Messages with an Output or with System are for hubs: they are refused as
// Unsupported, unless an Envelope takes them.
type Topics struct {
	// Telemetry is the topic of messages without a Topic of their own. Required.
	Telemetry string
	// Commands are topic filters, 32 at most, subscribed to with QoS 1. What comes goes to the handler
	// of device.Client.HandleMessages, with its Topic. A shared subscription is "$share/NAME/FILTER",
	// where the broker has them; EMQX also has "$queue/FILTER" and "$exclusive/FILTER". Empty: none,
	// and HandleMessages fails with Unsupported.
	Commands []string
	// ClientID identifies the device's session at the broker. Empty: "{device}", and for a module
	// "{device}/{module}".
	ClientID string
	// Retain and AtMostOnce hold for all telemetry, in addition to messages that set them themselves.
	Retain, AtMostOnce bool
	// Birth is published on each connection, and must be acknowledged before the device counts as
	// connected. Its Topic is required; Retain above is not for it. With QoS 0 (its own AtMostOnce, or
	// that of the transport's options) it is published without waiting. Its counterpart is the Will in
	// the transport's options. Nil: none.
	Birth *transport.Message
	// Envelope puts a message into the payload, with what MQTT 3.1.1 has no place for. Package
	// cloudevents has some. Nil: the payload is the Body alone.
	Envelope Envelope
	// DropProperties sends messages over MQTT 3.1.1 without the fields that it has no place for:
	// Properties, CorrelationID, ContentType, ContentEncoding, Component, Created and ResponseTopic.
	// Without it and without an Envelope a message with one of these is refused as Unsupported. MQTT 5
	// has a place for all of these.
	DropProperties bool
	// MaxSize is the largest message that the broker takes, in bytes as Message.Size counts them, of
	// what an Envelope made of it. 0: 256 KB, which is also the most that a client accepts.
	MaxSize int
}

// An Envelope is a form for messages on the wire. It may be called from several goroutines.
type Envelope interface {
	// Seal sets dst, which is zero, to the message to publish in place of m. Over MQTT 3.1.1
	// (properties is false) only its Body, Topic, Retain and AtMostOnce are sent. dst may share memory
	// with m. An *transport.Error keeps its Kind; any other error is Invalid. Either refuses m alone.
	// MQTT 5 has no place for Output and System: there dst must not have them. Seal keeps neither m
	// nor dst.
	Seal(dst, m *transport.Message, properties bool) error
	// Open replaces what Seal made of a message by that message. A message that is not in the
	// envelope's form is left as it is. If Open panics, the message is acknowledged and not delivered.
	Open(m *transport.Message)
}
