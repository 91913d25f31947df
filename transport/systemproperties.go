package transport

import (
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/texts"
)

// SystemProperties are system properties of a hub's messages, beside those that are fields of
// Message. Empty ones are not sent. Brokers that are no hubs refuse a message that has them as
// Unsupported, and so do the smaller dialects of IoT Hub (see package dialect).
//
//	                    MQTT     AMQP                                             HTTPS
//	To                  $.to     to                                               iothub-to
//	UserID              $.uid    user-id                                          iothub-userid
//	Schema              $.schema iothub-message-schema (application property)     iothub-messageschema
//	InterfaceID         $.ifid   iothub-interface-id (annotation)                 iothub-interface-id
//	ConnectionDeviceID  $.cdid   iothub-connection-device-id (app. property)      iothub-connection-device-id
//	ConnectionModuleID  $.cmid   iothub-connection-module-id (app. property)      iothub-connection-module-id
//	DiagnosticID        $.diagid Diagnostic-Id (annotation)                       not sent
//	DiagnosticContext   $.diagctx Correlation-Context (annotation)                not sent
type SystemProperties struct {
	// To is the address of the message. In a message from a hub it is that of the device.
	To string
	// UserID is the id of the user who produced the message.
	UserID string
	// Schema names the schema of the body.
	Schema string
	// InterfaceID names the interface that the message belongs to. SecurityInterface makes it a
	// security message.
	InterfaceID string
	// ConnectionDeviceID and ConnectionModuleID name who sent the message, in one that came by a
	// module's input. A hub stamps them on telemetry itself.
	ConnectionDeviceID, ConnectionModuleID string
	// DiagnosticID and DiagnosticContext are the identity and the context of the service's former
	// diagnostics. The W3C's trace context travels in the application properties "traceparent" and
	// "tracestate" instead.
	DiagnosticID, DiagnosticContext string
}

// SecurityInterface is the InterfaceID of security messages, which a hub passes to the field's
// security service rather than to routes.
const SecurityInterface = "urn:azureiot:Security:SecurityAgent:1"

// texts returns the fields with their names.
func (p *SystemProperties) texts() [8]struct{ name, value string } {
	return [...]struct{ name, value string }{
		{"To", p.To}, {"UserID", p.UserID}, {"Schema", p.Schema}, {"InterfaceID", p.InterfaceID},
		{"ConnectionDeviceID", p.ConnectionDeviceID}, {"ConnectionModuleID", p.ConnectionModuleID},
		{"DiagnosticID", p.DiagnosticID}, {"DiagnosticContext", p.DiagnosticContext},
	}
}

// size returns the size of the values. p may be nil.
func (p *SystemProperties) size() (n int) {
	if p != nil {
		for _, f := range p.texts() {
			n += len(f.value)
		}
	}
	return n
}

// invalid returns the name of the first field that cannot be sent, and why; empty if there is none.
// p may be nil.
func (p *SystemProperties) invalid() (name, problem string) {
	if p != nil {
		for _, f := range p.texts() {
			switch {
			case !utf8.ValidString(f.value):
				return f.name, " is not valid UTF-8"
			case !texts.Plain(f.value):
				return f.name, textRule
			}
		}
	}
	return "", ""
}
