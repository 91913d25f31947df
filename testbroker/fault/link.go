package fault

import (
	"fmt"
)

// LinkKind is the purpose of a link over AMQP. Sender and receiver are the client's roles.
type LinkKind uint8

const (
	// LinkAny means links of all kinds.
	LinkAny LinkKind = iota
	// LinkTelemetry carries telemetry messages to the hub.
	LinkTelemetry
	// LinkC2D carries C2D messages to the device.
	LinkC2D
	// LinkTwinSender carries twin requests.
	LinkTwinSender
	// LinkTwinReceiver carries answers to twin requests and changes of the twin.
	LinkTwinReceiver
	// LinkMethodSender carries answers to direct methods.
	LinkMethodSender
	// LinkMethodReceiver carries calls of direct methods.
	LinkMethodReceiver
	// LinkCBSSender carries tokens.
	LinkCBSSender
	// LinkCBSReceiver carries answers to tokens.
	LinkCBSReceiver
	// LinkInput carries messages to the inputs of a module.
	LinkInput
	// LinkServiceC2D carries C2D messages from a back end to the hub. Its faults name no device.
	LinkServiceC2D
	// LinkFeedback and LinkFileNotification carry the outcomes of C2D messages, and the uploads that
	// have succeeded, to a back end. Their faults name no device.
	LinkFeedback
	LinkFileNotification
	// LinkEvents carries events of a partition to a back end. Its faults name no device.
	LinkEvents
	// LinkEventsManagement carries questions about the event hub, and the answers. Its faults name no
	// device.
	LinkEventsManagement
)

var linkNames = [...]string{
	LinkAny: "any", LinkTelemetry: "telemetry", LinkC2D: "C2D", LinkTwinSender: "twin sender",
	LinkTwinReceiver: "twin receiver",
	LinkInput:        "input",
	LinkServiceC2D:   "service C2D", LinkFeedback: "feedback", LinkFileNotification: "file notification",
	LinkEvents: "events", LinkEventsManagement: "events management",
	LinkMethodSender: "method sender", LinkMethodReceiver: "method receiver", LinkCBSSender: "CBS sender",
	LinkCBSReceiver: "CBS receiver",
}

// String returns the name of the kind.
func (k LinkKind) String() string {
	if int(k) < len(linkNames) {
		return linkNames[k]
	}
	return fmt.Sprintf("LinkKind(%d)", uint8(k))
}
