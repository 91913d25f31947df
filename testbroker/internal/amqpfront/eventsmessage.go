package amqpfront

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// authMethods are the values of the annotation that says how a device was authenticated, by whether
// it has a certificate, then by whether it is a module.
var authMethods = map[bool]map[bool]string{
	false: {
		false: `{"scope":"device","type":"sas","issuer":"iothub","acceptingIpFilterRule":null}`,
		true:  `{"scope":"module","type":"sas","issuer":"iothub","acceptingIpFilterRule":null}`,
	},
	true: {
		false: `{"scope":"device","type":"x509Certificate","issuer":"external","acceptingIpFilterRule":null}`,
		true:  `{"scope":"module","type":"x509Certificate","issuer":"external","acceptingIpFilterRule":null}`,
	},
}

// eventHead is about how many bytes an event has besides its body.
const eventHead = 768

// appendEvent appends the message of an event, with delivery annotations unless they are nil.
func appendEvent(dst []byte, e *hub.EventMessage, delivery wire.Map) []byte {
	m := e.Message
	payload, err := wire.AppendMessage(slices.Grow(dst, len(m.Body)+eventHead), &wire.Message{
		DeliveryAnnotations: delivery, MessageAnnotations: eventAnnotations(e), Properties: eventProperties(m),
		ApplicationProperties: eventApplicationProperties(m), Data: [][]byte{m.Body},
	})
	if err != nil {
		panic("amqpfront: event: " + err.Error()) // texts are made valid, keys unique
	}
	return payload
}

func eventAnnotations(e *hub.EventMessage) wire.Map {
	m := e.Message
	all := make(wire.Map, 0, 14)
	all = append(all,
		wire.Pair{Key: wire.Symbol("x-opt-sequence-number"), Value: e.Sequence},
		wire.Pair{Key: wire.Symbol("x-opt-offset"), Value: strconv.FormatInt(eventhub.OffsetOf(e.Sequence), 10)},
		wire.Pair{Key: wire.Symbol("x-opt-enqueued-time"), Value: wire.Timestamp(e.Enqueued.UnixMilli())},
		wire.Pair{Key: wire.Symbol("iothub-enqueuedtime"), Value: wire.Timestamp(m.Received.UnixMilli())},
		wire.Pair{Key: wire.Symbol("iothub-message-source"), Value: string(e.Source)},
	)
	method := ""
	if e.Source == hubdata.Telemetry {
		method = authMethods[e.X509][m.ModuleID != ""]
	}
	for i, v := range [...]string{m.DeviceID, m.ModuleID, method, e.Generation, e.Model, m.Component, m.InterfaceID,
		m.DiagnosticID, m.DiagnosticContext} {
		if v != "" {
			all = append(all, wire.Pair{Key: optionalAnnotations[i], Value: utf8Text(v)})
		}
	}
	return all
}

// optionalAnnotations are the names of annotations that only some events have. As values of an
// interface they need no memory for each event.
var optionalAnnotations = [...]any{
	wire.Symbol("iothub-connection-device-id"), wire.Symbol("iothub-connection-module-id"),
	wire.Symbol("iothub-connection-auth-method"), wire.Symbol("iothub-connection-auth-generation-id"),
	wire.Symbol("dt-dataschema"), wire.Symbol("dt-subject"), wire.Symbol("iothub-interface-id"),
	wire.Symbol("Diagnostic-Id"), wire.Symbol("Correlation-Context"),
}

func eventProperties(m *hubdata.Message) *wire.Properties {
	p := &wire.Properties{ContentType: symbolText(m.ContentType), ContentEncoding: symbolText(m.ContentEncoding)}
	if m.MessageID != "" {
		p.MessageID = utf8Text(m.MessageID)
	}
	if m.CorrelationID != "" {
		p.CorrelationID = utf8Text(m.CorrelationID)
	}
	if m.UserID != "" {
		p.UserID = []byte(m.UserID)
	}
	if m.To != "" {
		p.To = wire.Some(utf8Text(m.To))
	}
	return p
}

// fewProperties are compared with each other, which needs no memory. A device may send thousands.
const fewProperties = 24

// eventApplicationProperties returns the application properties. The first of several with the same
// name counts, because keys must be unique.
func eventApplicationProperties(m *hubdata.Message) wire.Map {
	all := make(wire.Map, 0, len(m.Properties)+4)
	var seen map[string]bool // of messages with many properties
	if cap(all) > fewProperties {
		seen = make(map[string]bool, cap(all))
	}
	add := func(name, value string) {
		name = utf8Text(name)
		known := seen[name]
		if seen == nil {
			known = slices.ContainsFunc(all, func(p wire.Pair) bool { return p.Key == any(name) })
		} else {
			seen[name] = true
		}
		if !known {
			all = append(all, wire.Pair{Key: name, Value: utf8Text(value)})
		}
	}
	for _, p := range m.Properties {
		add(p.Name, p.Value)
	}
	for _, p := range [...]hubdata.Property{
		{Name: "iothub-creation-time-utc", Value: m.CreationTime}, {Name: "iothub-message-schema", Value: m.Schema},
		{Name: "iothub-outputname", Value: m.Output},
	} {
		if p.Value != "" {
			add(p.Name, p.Value)
		}
	}
	return all
}

// utf8Text and symbolText make texts of devices valid for the types of AMQP.
func utf8Text(s string) string { return strings.ToValidUTF8(s, "?") }

func symbolText(s string) wire.Symbol {
	return wire.Symbol(strings.Map(func(r rune) rune {
		if r >= 0x80 {
			return '?'
		}
		return r
	}, s))
}
