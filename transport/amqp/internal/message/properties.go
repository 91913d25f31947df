package message

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// creationTime is the application property that carries Message.Created.
const creationTime = "iothub-creation-time-utc"

// subject is the message annotation that carries Message.Component. For brokers that are no hub it
// is an application property: a peer detaches the link for an unknown annotation that does not
// begin with "x-opt-" (AMQP 1.0 part 3, 3.2.10).
const subject = "dt-subject"

// section is a section of a message.
type section uint8

const (
	nowhere section = iota
	annotations
	application
)

// property is a field of a message that has a name of the hub's own, because AMQP has no place for
// it. It is read from the annotations.
type property struct {
	name string
	sent section // the section in which it is sent
	also bool    // it is also read from the application properties; an annotation goes first
	// field returns the field of m, or of p, which is for the system properties of m.
	field func(m *transport.Message, p *transport.SystemProperties) *string
}

// properties are the properties of IoT Hub and its edge gateways. A gateway passes the sender of a
// message in annotations, a device in application properties. A program may have application
// properties of its own with the names of the former diagnostics.
var properties = [...]property{
	{subject, annotations, true,
		func(m *transport.Message, _ *transport.SystemProperties) *string { return &m.Component }},
	{"x-opt-input-name", nowhere, false,
		func(m *transport.Message, _ *transport.SystemProperties) *string { return &m.Input }},
	{"iothub-outputname", application, true,
		func(m *transport.Message, _ *transport.SystemProperties) *string { return &m.Output }},
	{"iothub-message-schema", application, true,
		func(_ *transport.Message, p *transport.SystemProperties) *string { return &p.Schema }},
	{"iothub-interface-id", annotations, true,
		func(_ *transport.Message, p *transport.SystemProperties) *string { return &p.InterfaceID }},
	{"iothub-connection-device-id", application, true,
		func(_ *transport.Message, p *transport.SystemProperties) *string { return &p.ConnectionDeviceID }},
	{"iothub-connection-module-id", application, true,
		func(_ *transport.Message, p *transport.SystemProperties) *string { return &p.ConnectionModuleID }},
	{"Diagnostic-Id", annotations, false,
		func(_ *transport.Message, p *transport.SystemProperties) *string { return &p.DiagnosticID }},
	{"Correlation-Context", annotations, false,
		func(_ *transport.Message, p *transport.SystemProperties) *string { return &p.DiagnosticContext }},
}

// none are the system properties of a message without any. Nothing writes to it.
var none transport.SystemProperties

// value returns the field of m, empty if it has none.
func (q *property) value(m *transport.Message) string {
	p := m.System
	if p == nil {
		p = &none
	}
	return *q.field(m, p)
}

// count returns how many properties m has for a section.
func count(m *transport.Message, in section) (n int) {
	for i := range properties {
		if q := &properties[i]; q.sent == in && q.value(m) != "" {
			n++
		}
	}
	return n
}

// readAnnotations fills the fields of m and p from the annotations of a message. Only a hub has
// more than the first property.
func readAnnotations(from wire.Map, hub bool, m *transport.Message, p *transport.SystemProperties) {
	for i := range properties {
		if q := &properties[i]; hub || i == 0 {
			v, _ := from.Get(q.name)
			if text, ok := textOf(v); ok {
				*q.field(m, p) = text
			}
		}
	}
}

// readApplication fills a field of m or p from an application property. It returns false for one
// that belongs to no field.
func readApplication(name string, value any, hub bool, m *transport.Message, p *transport.SystemProperties) bool {
	text, ok := textOf(value)
	if !ok {
		return false
	}
	for i := range properties {
		if q := &properties[i]; q.name == name && q.also && (hub || i == 0) {
			if field := q.field(m, p); *field == "" { // an annotation goes first
				*field = text
			}
			return true
		}
	}
	return false
}

// textOf returns a text, which may be a string or a symbol.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case wire.Symbol:
		return string(v), true
	}
	return "", false
}
