package hub

import "fmt"

// LinkKind says what a link over AMQP is for. Sender and receiver are said from the client's side.
type LinkKind uint8

const (
	// LinkAny stands for links of all kinds.
	LinkAny LinkKind = iota
	// LinkTelemetry carries telemetry messages to the hub.
	LinkTelemetry
	// LinkC2D carries commands to the device.
	LinkC2D
	// LinkTwinSender carries requests about the twin.
	LinkTwinSender
	// LinkTwinReceiver carries answers about the twin and changes of it.
	LinkTwinReceiver
	// LinkMethodSender carries answers to direct methods.
	LinkMethodSender
	// LinkMethodReceiver carries calls of direct methods.
	LinkMethodReceiver
	// LinkCBSSender carries tokens.
	LinkCBSSender
	// LinkCBSReceiver carries answers to tokens.
	LinkCBSReceiver
)

var linkNames = [...]string{
	LinkAny: "any", LinkTelemetry: "telemetry", LinkC2D: "C2D", LinkTwinSender: "twin sender",
	LinkTwinReceiver: "twin receiver",
	LinkMethodSender: "method sender", LinkMethodReceiver: "method receiver", LinkCBSSender: "CBS sender",
	LinkCBSReceiver: "CBS receiver",
}

// String names the kind.
func (k LinkKind) String() string {
	if int(k) < len(linkNames) {
		return linkNames[k]
	}
	return fmt.Sprintf("LinkKind(%d)", uint8(k))
}
