package transport

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/texts"
)

// MaxMessageSize is the maximum size of a telemetry message, as returned by Message.Size: 256 KB.
const MaxMessageSize = 256 * 1024

// MaxIDLength is the maximum length of a message or correlation id, in bytes.
const MaxIDLength = 128

// Property is one application property. The hub's routing compares names without case.
type Property struct{ Name, Value string }

// Message is a telemetry message, or in a handler a cloud-to-device message. The client owns a
// telemetry message from the call until its result: neither the Message nor the memory it points to
// may be changed. A cloud-to-device message is valid until its handler returns.
type Message struct {
	// ID is the message id. Resends have the same id, so a consumer can detect duplicates. Empty: the
	// client generates one (device.Options.MessageIDPrefix).
	ID            string
	CorrelationID string
	// ContentType, such as "application/json", lets the hub route by body. Empty: not sent.
	ContentType string
	// ContentEncoding is "utf-8", "utf-16" or "utf-32" for bodies that the hub reads for routing.
	// Empty: not sent.
	ContentEncoding string
	// Component is the component of the device's Plug and Play model that the message comes from, as
	// the model names it. Over MQTT it is sent as "$.sub" in the topic, over AMQP as the message
	// annotation "dt-subject" (to other brokers as an application property of that name), over HTTP as
	// "dt-subject" in the headers or the batch. Empty: not sent, which means the root of the model.
	// twin.SetComponent also checks the name.
	Component string
	// Created is the time of the reading. Zero: not sent.
	Created time.Time
	// Expires is the time after which the message is useless. The client drops it then (result
	// Expired), unless it is in flight at that moment. The time is also sent. Zero: never.
	Expires time.Time
	// Properties are application properties, sent in this order. A name may be there once, whatever
	// its case.
	Properties []Property
	Body       []byte
	// Topic is the MQTT topic to publish the message to, instead of the one that package dialect has
	// for telemetry. In a message from a broker it is the topic on which the message came. A hub has
	// topics of its own, as AMQP and HTTPS have: they refuse a message with a Topic as Unsupported.
	// Empty: the topic for telemetry.
	Topic string
	// ResponseTopic is where the sender expects an answer: the response topic of MQTT 5, and reply-to
	// over AMQP to brokers that are no hubs. Other transports refuse the message as Unsupported.
	// Empty: not sent.
	ResponseTopic string
	// Output is the output of a module that the message leaves by. An edge gateway's routes say where
	// it goes from there. Over MQTT it is sent as "$.on" in the topic, over AMQP as the application
	// property "iothub-outputname". HTTPS and brokers that are no hubs refuse the message as
	// Unsupported. Empty: the message is telemetry, which routes can take to the hub.
	Output string
	// Input is the input of a module by which the message came. It is not sent.
	Input string
	// System has the system properties that few messages have. Nil: none.
	System *SystemProperties
	// Retain asks an MQTT broker to keep the message for later subscribers of its topic. In a message
	// from a broker: it was kept for this device. AMQP and HTTPS refuse the message as Unsupported.
	Retain bool
	// AtMostOnce sends the message with MQTT's QoS 0: it has its result when it was written to the
	// network, and may be lost with the connection. AMQP and HTTPS send it as any other.
	AtMostOnce bool
	// Redelivered is set in cloud-to-device messages that the hub has delivered before, so a handler
	// may have seen the message. It comes from the DUP flag of MQTT, iothub-deliverycount or the
	// header's delivery-count of AMQP, and iothub-deliverycount of HTTPS. It is not sent.
	Redelivered bool
}

// Size returns the size that the hub counts against its limit: the body, the values of the system
// properties, and the names and values of the application properties. A time counts 24 bytes, the
// length of its usual text form.
func (m *Message) Size() int {
	n := len(m.Body) + len(m.ID) + len(m.CorrelationID) + len(m.ContentType) + len(m.ContentEncoding) + len(m.Component) +
		len(m.ResponseTopic)
	if !m.Created.IsZero() {
		n += timeSize
	}
	if !m.Expires.IsZero() {
		n += timeSize
	}
	for i := range m.Properties {
		n += len(m.Properties[i].Name) + len(m.Properties[i].Value)
	}
	return n + len(m.Output) + m.System.size()
}

const timeSize = len("2030-01-01T00:00:00.000Z")

// Validate returns an *Error of Kind Invalid or TooLarge for a message that no hub accepts. The
// error names the first invalid field and the fix.
func (m *Message) Validate() error {
	if m.Size() > MaxMessageSize {
		return &Error{Kind: TooLarge, Op: OpSend, Err: errors.New(texts.TooLarge(m.Size(), len(m.Body), MaxMessageSize))}
	}
	for _, f := range [...]struct{ name, value string }{
		{"ID", m.ID}, {"CorrelationID", m.CorrelationID}, {"ContentType", m.ContentType},
		{"ContentEncoding", m.ContentEncoding},
		{"Component", m.Component}, {"Topic", m.Topic}, {"ResponseTopic", m.ResponseTopic}, {"Output", m.Output},
	} {
		switch {
		case f.value == "":
		case !utf8.ValidString(f.value):
			return invalidMessage("message " + f.name + " is not valid UTF-8")
		case len(f.value) > MaxIDLength && (f.name == "ID" || f.name == "CorrelationID"):
			return invalidMessage("message " + f.name + " is longer than 128 bytes; shorten it")
		case f.name == "CorrelationID": // binary in MQTT 5, and echoed in replies
		case !texts.Plain(f.value):
			return invalidMessage("message " + f.name + textRule)
		}
	}
	if name, problem := m.System.invalid(); name != "" {
		return invalidMessage("message System." + name + problem)
	}
	if !validTopic(m.Topic) {
		return invalidMessage("message Topic" + topicRule)
	}
	if !validTopic(m.ResponseTopic) {
		return invalidMessage("message ResponseTopic" + topicRule)
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
		case !texts.Plain(p.Name):
			return invalidMessage("message property name " + quote(p.Name) + textRule)
		}
	}
	if name := repeated(m.Properties); name != "" {
		return invalidMessage("message property " + quote(name) + " is there twice; give each name once, whatever its case")
	}
	return nil
}

const (
	textRule  = " has a control character or a noncharacter, for which brokers close the connection; leave it out"
	topicRule = " is not a topic to publish to; use 65535 bytes at most, without '+' and '#'"
)

// maxTopic is the longest topic, in bytes: [MQTT-4.7.3-3].
const maxTopic = 65535

// validTopic reports whether t, which is plain text, names a topic: [MQTT-3.3.2-2].
func validTopic(t string) bool {
	for i := range len(t) {
		if c := t[i]; c == '+' || c == '#' {
			return false
		}
	}
	return len(t) <= maxTopic
}

// repeated returns a property name that is there twice, empty if there is none. AMQP's map keeps
// the last one only, and hubs compare names without case, as headers of HTTP do.
func repeated(properties []Property) string {
	switch {
	case len(properties) < 2:
		return ""
	case len(properties) > 128:
		return repeatedOfMany(properties)
	}
	var table [256]uint8 // open addressing by the hash of a name: its index plus 1
	for i := range properties {
		name := properties[i].Name
		at := texts.HashFold(name)
		for ; table[at] > 0; at++ { // and from the end to the beginning
			if texts.EqualFold(name, properties[table[at]-1].Name) {
				return name
			}
		}
		table[at] = uint8(i + 1)
	}
	return ""
}

// repeatedOfMany is repeated with a map, which takes memory and twice the time.
func repeatedOfMany(properties []Property) string {
	seen := make(map[string]bool, len(properties))
	for i := range properties {
		name := texts.ToLower(properties[i].Name)
		if seen[name] {
			return properties[i].Name
		}
		seen[name] = true
	}
	return ""
}

// invalidMessage returns the error of a wrong message. Inlined, it would take 2 KB more of a
// program for ARM.
//
//go:noinline
func invalidMessage(text string) *Error {
	return &Error{Kind: Invalid, Op: OpSend, Err: errors.New(text)}
}

// reservedNames are the names that a hub sets itself or uses for system properties, and that the
// official SDKs refuse, in addition to names that begin with "$" or "iothub-".
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
	if name[0] == '$' || len(name) >= len(prefix) && texts.EqualFold(name[:len(prefix)], prefix) {
		return true
	}
	for _, r := range reservedNames {
		if len(name) == len(r) && texts.EqualFold(name, r) { // the length saves most of the calls
			return true
		}
	}
	return false
}
