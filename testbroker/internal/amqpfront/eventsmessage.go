package amqpfront

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/eventhub"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"

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
func appendEvent(dst []byte, e *telemetry.Event, delivery wire.Map) []byte {
	dst = slices.Grow(dst, len(e.Message.Body)+eventHead)
	if delivery != nil {
		dst = appendSections(dst, &wire.Message{DeliveryAnnotations: delivery})
	}
	dst = appendProperties(appendAnnotations(dst, e), e.Message)
	if all := eventApplicationProperties(e.Message); len(all) > 0 {
		dst = appendSections(dst, &wire.Message{ApplicationProperties: all})
	} else {
		none := wire.BeginApplicationProperties(dst)
		dst = none.End()
	}
	return wire.AppendData(dst, e.Message.Body)
}

func appendSections(dst []byte, m *wire.Message) []byte {
	dst, err := wire.AppendMessage(dst, m)
	if err != nil {
		panic("amqpfront: event: " + err.Error()) // texts are made valid, keys unique
	}
	return dst
}

func appendAnnotations(dst []byte, e *telemetry.Event) []byte {
	m := e.Message
	f := wire.BeginMessageAnnotations(dst)
	f.Symbol("x-opt-sequence-number")
	f.Long(e.Sequence)
	f.Symbol("x-opt-offset")
	f.String(strconv.FormatInt(eventhub.OffsetOf(e.Sequence), 10))
	f.Symbol("x-opt-enqueued-time")
	f.Timestamp(wire.Timestamp(e.Enqueued.UnixMilli()))
	f.Symbol("iothub-enqueuedtime")
	f.Timestamp(wire.Timestamp(m.Received.UnixMilli()))
	f.Symbol("iothub-message-source")
	f.String(string(e.Source))
	method := ""
	if e.Source == hubdata.EventSourceTelemetry {
		method = authMethods[e.X509][m.ModuleID != ""]
	}
	for i, v := range [...]string{m.DeviceID, m.ModuleID, method, e.Generation, e.Model, m.Component, m.InterfaceID,
		m.DiagnosticID, m.DiagnosticContext} {
		if v != "" {
			f.Symbol(optionalAnnotations[i])
			f.String(utf8Text(v))
		}
	}
	return f.End()
}

// optionalAnnotations are the names of annotations that only some events have.
var optionalAnnotations = [...]wire.Symbol{
	"iothub-connection-device-id", "iothub-connection-module-id", "iothub-connection-auth-method",
	"iothub-connection-auth-generation-id", "dt-dataschema", "dt-subject", "iothub-interface-id", "Diagnostic-Id",
	"Correlation-Context",
}

// appendProperties appends the fields of wire.Properties that events have.
func appendProperties(dst []byte, m *hubdata.Message) []byte {
	f := wire.BeginProperties(dst)
	text := func(s string) {
		if s == "" {
			f.Absent()
		} else {
			f.String(utf8Text(s))
		}
	}
	symbol := func(s string) {
		if s == "" {
			f.Absent()
		} else {
			f.Symbol(symbolText(s))
		}
	}
	text(m.MessageID)
	if m.UserID == "" {
		f.Absent()
	} else {
		f.Binary([]byte(m.UserID))
	}
	text(m.To)
	f.Absent() // subject
	f.Absent() // reply-to
	text(m.CorrelationID)
	symbol(m.ContentType)
	symbol(m.ContentEncoding)
	return f.End()
}

// fewProperties are compared with each other, which needs no memory. A device may send thousands.
const fewProperties = 24

// eventApplicationProperties returns the application properties. The first of several with the same
// name counts, because keys must be unique.
func eventApplicationProperties(m *hubdata.Message) wire.Map {
	if len(m.Properties) == 0 && m.CreationTime == "" && m.Schema == "" && m.Output == "" {
		return nil
	}
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
