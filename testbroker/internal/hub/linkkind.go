package hub

import "fmt"

// LinkKind is the purpose of a link over AMQP. Sender and receiver are the client's roles.
type LinkKind uint8

const (
	LinkAny LinkKind = iota
	LinkTelemetry
	LinkC2D
	LinkTwinSender
	LinkTwinReceiver
	LinkMethodSender
	LinkMethodReceiver
	LinkCBSSender
	LinkCBSReceiver
)

var linkNames = [...]string{
	LinkAny: "any", LinkTelemetry: "telemetry", LinkC2D: "C2D", LinkTwinSender: "twin sender",
	LinkTwinReceiver: "twin receiver",
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
