package fault

import (
	"fmt"
	"time"
)

// MessageMode says how the hub treats a message with which a device requests a fault: one whose
// application property "AzIoTHub_FaultOperationType" has a known type, in any letter case.
//
// "KillTcp" cuts the connection, and with a duration also every new one until the duration ends.
// "ShutDownMqtt" ends the connection in order. "InvokeThrottling", "InvokeMaxMessageQuota" and
// "InvokeAuthError" end it in order and refuse new ones, with CONNACK 3, 3 and 5, for the duration.
//
// Over AMQP, the three "Invoke" types keep the connection. They reject messages for the duration,
// or the next message if there is no duration. "ShutDownAmqp" and "KillAmqpConnection" close the
// connection with "amqp:connection:forced". "KillAmqpSession" ends the session. The other types
// detach the link that they name with "amqp:link:detach-forced". A type for another protocol does
// nothing. The hub recognizes a new connection of a device that requested "KillTcp" by its
// put-token, or by SASL PLAIN.
//
// Over HTTP, "KillTcp" cuts the connections that the device has used, and with a duration every new
// one at its request. The three "Invoke" types answer the device's messages with 429, 403 and 401,
// for as long as over AMQP.
//
// The other properties are "AzIoTHub_FaultOperationCloseReason", which becomes part of the cause,
// "AzIoTHub_FaultOperationDelayInSecs" and "AzIoTHub_FaultOperationDurationInSecs". Such a message
// is not telemetry: it is not in the log, and faults declared with testbroker.Hub.Inject ignore
// it. See
// testbroker.Hub.FaultMessages.
type MessageMode uint8

const (
	// ObeyMessages acknowledges the message at once and applies its fault. Without the
	// acknowledgement, an at-least-once client would repeat the request after each reconnect.
	ObeyMessages MessageMode = iota
	// ObeyMessagesUnacked applies the fault and never acknowledges the message, as the service
	// may.
	ObeyMessagesUnacked
	// StoreMessages treats the message as telemetry.
	StoreMessages
)

// Message is a fault that a device requested with a message.
type Message struct {
	// DeviceID and ModuleID name the device that sent the request. The fault happens to the same
	// device.
	DeviceID, ModuleID string
	// Type is the type in the service's spelling. Reason is the text that comes with it.
	Type, Reason string
	// Delay and Duration are whole seconds. A value that is not a number counts as zero.
	Delay, Duration time.Duration
	// Received is when the message arrived, by the hub's clock.
	Received time.Time
	// Happened reports that the fault has ended a connection, session or link, or has begun to refuse.
	// It stays false for types of another protocol.
	Happened bool
	// Refused counts the connects that the fault refused or cut, or the messages that it rejected.
	Refused int
}

// String returns the name of the constant.
func (f MessageMode) String() string {
	names := [...]string{"ObeyMessages", "ObeyMessagesUnacked", "StoreMessages"}
	if int(f) < len(names) {
		return names[f]
	}
	return fmt.Sprintf("MessageMode(%d)", uint8(f))
}
