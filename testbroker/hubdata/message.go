package hubdata

import (
	"time"
)

// MaxMessage is the size limit of a message in bytes: body, values of system properties, names and
// values of application properties.
const MaxMessage = 256 << 10

// Property is a name with a value.
type Property struct{ Name, Value string }

// Message is a telemetry message as stored by the hub.
type Message struct {
	// DeviceID and ModuleID name the sender. ModuleID is empty for the device itself.
	DeviceID, ModuleID string

	// System properties, empty when absent. Times are the sender's text.
	MessageID       string
	CorrelationID   string
	ContentType     string
	ContentEncoding string
	Component       string // Plug and Play component: "$.sub" over MQTT, "dt-subject" over AMQP and HTTP
	CreationTime    string
	Expiry          string
	To              string
	UserID          string
	Schema          string
	InterfaceID     string
	Output          string // the output of a module

	// ConnectionDeviceID and ConnectionModuleID are the sender as the client states it. The hub does
	// not believe them: DeviceID and ModuleID are authenticated.
	ConnectionDeviceID, ConnectionModuleID string
	// DiagnosticID and DiagnosticContext are "$.diagid" and "$.diagctx" over MQTT, and the annotations
	// "Diagnostic-Id" and "Correlation-Context" over AMQP.
	DiagnosticID, DiagnosticContext string

	// System holds all system properties in the order of the topic, decoded, with their wire names
	// such as "$.mid". Over MQTT 5 it holds the properties of the packet with their names in the
	// standard, such as "content-type", and the user properties that are in the fields above. HTTP has
	// no order, so there these and the application properties are sorted by header name.
	System []Property
	// Properties holds the application properties in the order of the topic, decoded. The hub adds
	// "mqtt-retain" to a message sent with RETAIN, and "iothub-MessageType" to a will. Names from HTTP
	// headers are in lower case; names in a batch are unchanged.
	Properties []Property
	// ResponseTopic is where the sender of an MQTT 5 message expects an answer.
	ResponseTopic string
	// Body is the payload.
	Body []byte

	// Protocol is the protocol by which the message arrived.
	Protocol Protocol
	// Topic is the topic to which the client published, undecoded; over AMQP the address of the link,
	// over HTTP the path.
	Topic string
	// QoS is 0 or 1. Over AMQP it is 0 for a message sent settled, over HTTP 1.
	QoS byte
	// PacketID is the MQTT packet id; zero with QoS 0 and for a will.
	PacketID uint16
	// Dup is the DUP flag of MQTT: the sender marks the message as a repetition.
	Dup bool
	// Retain is the RETAIN flag of MQTT, and Will reports that the message is a will. Both are false
	// at a classic hub.
	Retain, Will bool
	// Unrouted reports that no route of [MQTTv5Options] takes the message: back ends do not see it.
	Unrouted bool
	// Connection is the number of the connection of the message, counted from 1 over the life of the
	// hub.
	Connection uint64
	// Received is when the hub stored it, by the hub's clock.
	Received time.Time
	// Sequence numbers the messages in the order in which the hub stored them, from 1, since New or
	// the last testbroker.Hub.Reset.
	Sequence int
}

// Property returns the value of the first application property with that name; false when there is
// none.
func (m *Message) Property(name string) (string, bool) {
	for _, p := range m.Properties {
		if p.Name == name {
			return p.Value, true
		}
	}
	return "", false
}

// Conflict is a pair of messages of one sender with the same message id but different bodies. A
// sender that repeats a message after a loss must repeat it unchanged.
type Conflict struct {
	First, Second Message
}
