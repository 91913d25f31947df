package transport

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/ascii"
	"github.com/hubline-iot/hubline/internal/sizelimit"
)

// MaxMessageSize is the largest telemetry message that a hub takes, as counted by Message.Size: 256
// KB.
const MaxMessageSize = 256 * 1024

// MaxIDLength is the longest message or correlation id, in bytes.
const MaxIDLength = 128

// Property is one application property. Names are compared without case by the hub's routing.
type Property struct{ Name, Value string }

// Message is one telemetry message. After it was handed to the client it belongs to it until its
// result is known: neither the Message nor what it points to may be changed.
type Message struct {
	// ID is the message id. The client sends it unchanged each time, so a consumer can tell duplicates
	// by it. Empty: the client makes one (device.Options.MessageIDPrefix).
	ID            string
	CorrelationID string
	// ContentType, such as "application/json", lets the hub route by body. Empty: not sent.
	ContentType string
	// ContentEncoding is "utf-8", "utf-16" or "utf-32" for bodies that the hub is to read. Empty: not
	// sent.
	ContentEncoding string
	// Component is the component of the device's Plug and Play model that the message comes from, as
	// the model names it. It is sent as "$.sub" in the topic of MQTT, as the message annotation
	// "dt-subject" of AMQP (to a broker that is no hub as an application property of that name), and
	// as "dt-subject" among the headers of HTTP or in a batch. Empty: not sent, which stands for the
	// root of the model. pnp.SetComponent checks the name, too.
	Component string
	// Created is when the reading was taken. Zero: not sent.
	Created time.Time
	// Expires is when the message is not worth sending any more. The client drops it then (result
	// Expired), unless it is in flight at that moment, and sends the time along. Zero: never.
	Expires time.Time
	// Properties are application properties, sent in this order.
	Properties []Property
	Body       []byte
	// Redelivered is set in cloud-to-device messages: the hub says that it delivered this one before,
	// so a handler may have seen it. MQTT says so by the DUP flag, AMQP by iothub-deliverycount or the
	// header's delivery-count, HTTPS by iothub-deliverycount. It is not sent.
	Redelivered bool
}

// Size is what the hub counts against its limit: the body, the values of the system properties, and
// names and values of the application properties. Times count as their usual text of 24 bytes.
func (m *Message) Size() int {
	n := len(m.Body) + len(m.ID) + len(m.CorrelationID) + len(m.ContentType) + len(m.ContentEncoding) + len(m.Component)
	if !m.Created.IsZero() {
		n += timeSize
	}
	if !m.Expires.IsZero() {
		n += timeSize
	}
	for i := range m.Properties {
		n += len(m.Properties[i].Name) + len(m.Properties[i].Value)
	}
	return n
}

const timeSize = len("2030-01-01T00:00:00.000Z")

// Validate returns an *Error of Kind Invalid or TooLarge for a message that no hub takes. The error
// names the first such field and the fix.
func (m *Message) Validate() error {
	if m.Size() > MaxMessageSize {
		return &Error{Kind: TooLarge, Op: OpSend, Err: sizelimit.Error(m.Size(), MaxMessageSize)}
	}
	for _, f := range [...]struct{ name, value string }{
		{"ID", m.ID}, {"CorrelationID", m.CorrelationID}, {"ContentType", m.ContentType},
		{"ContentEncoding", m.ContentEncoding},
		{"Component", m.Component},
	} {
		if !utf8.ValidString(f.value) {
			return invalidMessage("message " + f.name + " is not valid UTF-8")
		}
		if len(f.value) > MaxIDLength && (f.name == "ID" || f.name == "CorrelationID") {
			return invalidMessage("message " + f.name + " is longer than 128 bytes; shorten it")
		}
	}
	for i := range m.Properties {
		p := &m.Properties[i]
		switch {
		case p.Name == "":
			return invalidMessage("a message property has an empty name; give it one")
		case reserved(p.Name):
			return invalidMessage("message property name " + quote(p.Name) + " is reserved by the hub; use the Message's own " +
				"field or another name")
		case !utf8.ValidString(p.Name) || !utf8.ValidString(p.Value):
			return invalidMessage("message property " + quote(p.Name) + " is not valid UTF-8; carry binary data in the body")
		}
	}
	return nil
}

func invalidMessage(text string) *Error {
	return &Error{Kind: Invalid, Op: OpSend, Err: errors.New(text)}
}

// reservedNames are the names that a hub sets itself or takes for system properties, and that the
// official SDKs refuse, besides all that begin with "$" or "iothub-".
var reservedNames = [...]string{
	"absolute-expiry-time", "connectiondeviceid", "connectionmoduleid", "content-encoding", "content-type",
	"correlation-id", "creation-time",
	"group-id", "group-sequence", "message-id", "mqtt-dup", "mqtt-retain", "reply-to", "reply-to-group-id", "subject",
	"to",
	"user-id",
	"dt-dataschema", "dt-subject",
}

func reserved(name string) bool {
	const prefix = "iothub-"
	if name[0] == '$' || len(name) >= len(prefix) && ascii.EqualFold(name[:len(prefix)], prefix) {
		return true
	}
	for _, r := range reservedNames {
		if ascii.EqualFold(name, r) {
			return true
		}
	}
	return false
}
