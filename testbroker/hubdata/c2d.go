package hubdata

import (
	"fmt"
	"time"
)

const (
	// MaxC2D is the size limit of the body of a C2D message in bytes.
	MaxC2D = 64 << 10
	// MaxMessageID is the length limit of a message id.
	MaxMessageID = 128
)

// C2D is a cloud-to-device message, or a message to an input of a module. Empty fields are absent.
type C2D struct {
	MessageID       string
	CorrelationID   string
	UserID          string
	ContentType     string
	ContentEncoding string
	// To is the address. Default: for a C2D message that of the receiver, for an input none.
	To string
	// Schema and InterfaceID name the schema of the body and the interface that the message belongs
	// to.
	Schema, InterfaceID string
	// Component is the Plug and Play component.
	Component string
	// ConnectionDeviceID and ConnectionModuleID name the sender of a message to an input.
	ConnectionDeviceID, ConnectionModuleID string
	// DiagnosticID and DiagnosticContext belong to the service's former diagnostics. HTTP has no
	// headers for them.
	DiagnosticID, DiagnosticContext string
	// CreationTime is when the sender made the message.
	CreationTime time.Time
	// Ack selects the outcomes for which the sender wants feedback: "none", "positive", "negative",
	// "full" or empty.
	Ack string
	// Expiry is a time of the hub's clock. The device receives it only if the sender has set it.
	Expiry time.Time
	// Properties are the application properties, in order. An empty value is sent as "name=".
	Properties []Property
	// Topic is the topic of the message on a plain broker. Default: that of
	// [BrokerOptions.Commands].
	Topic string
	// ResponseTopic is where the sender expects an answer, over MQTT 5.
	ResponseTopic string
	// Retain sets the RETAIN flag on a plain broker.
	Retain bool
	// Extra is text that is appended to the properties in the topic unchanged, for example "&name" for
	// a property without a value, or "/".
	Extra string
	// Body is the payload, at most [MaxC2D] bytes, for an input [MaxMessage].
	Body []byte
}

// C2DState is the state of a C2D message.
type C2DState uint8

const (
	// C2DEnqueued: it waits for delivery.
	C2DEnqueued C2DState = iota + 1
	// C2DInvisible: it was delivered, and is locked until the device acknowledges it or the lock ends.
	C2DInvisible
	// C2DCompleted: the device acknowledged it, or it was sent to a device that subscribed with QoS 0.
	C2DCompleted
	// C2DExpired: it waited until its expiry.
	C2DExpired
	// C2DDeadLettered: it was delivered as often as allowed and never acknowledged.
	C2DDeadLettered
	// C2DPurged: testbroker.Hub.PurgeC2D or testbroker.Hub.RemoveDevice dropped it.
	C2DPurged
	// C2DRejected: the device rejected it, which is possible over AMQP and HTTP.
	C2DRejected
)

var c2dStateNames = [...]string{
	C2DEnqueued: "enqueued", C2DInvisible: "invisible", C2DCompleted: "completed", C2DExpired: "expired",
	C2DDeadLettered: "dead-lettered", C2DPurged: "purged",
	C2DRejected: "rejected",
}

// String returns the state in lower case.
func (s C2DState) String() string {
	if s != 0 && int(s) < len(c2dStateNames) {
		return c2dStateNames[s]
	}
	return fmt.Sprintf("C2DState(%d)", uint8(s))
}

// C2DRecord is a C2D message with its state.
type C2DRecord struct {
	// DeviceID and ModuleID name the receiver. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	// Input is the input of the module; empty for a C2D message.
	Input string
	// Sequence numbers the C2D messages of one receiver, or the messages to its inputs, from 1.
	Sequence int
	// C2D is the message as sent, with its effective expiry.
	C2D C2D
	// Topic is the topic to which it is published.
	Topic string
	// State is its state.
	State C2DState
	// Deliveries is how often it was delivered to the device. Over MQTT all deliveries but the first
	// had DUP set.
	Deliveries int
	// Connection is the number of the connection of the last delivery.
	Connection uint64
	// PacketID is the packet id of its deliveries with QoS 1. It stays the same.
	PacketID uint16
	// LockToken is the lock token of the last delivery over AMQP or HTTP.
	LockToken string
	// Enqueued and Ended are times of the hub's clock. Ended is zero while the C2D message waits.
	Enqueued, Ended time.Time
	// Feedback is the status code that the sender receives in the end: "Success", "Expired",
	// "DeliveryCountExceeded", "Purged" or "Rejected". It is empty if Ack does not ask for it.
	Feedback string
}
