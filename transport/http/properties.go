package http

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// property is a text property of a message that is a field of its own.
type property struct {
	// header is the hub's name: of a header of a single message, and of a member of "properties" in a
	// batch. Empty: HTTPS has no place for the property.
	header string
	field  string // in errors
	at     func(m *transport.Message, s *transport.SystemProperties) *string
}

type (
	message = transport.Message
	system  = transport.SystemProperties
)

// textProperties are all text properties, in both directions. Source: the developer guide of Azure
// IoT Hub, and the official SDKs.
var textProperties = [...]property{
	{"iothub-messageid", "ID", func(m *message, _ *system) *string { return &m.ID }},
	{"iothub-correlationid", "CorrelationID", func(m *message, _ *system) *string { return &m.CorrelationID }},
	{"iothub-contenttype", "ContentType", func(m *message, _ *system) *string { return &m.ContentType }},
	{"iothub-contentencoding", "ContentEncoding", func(m *message, _ *system) *string { return &m.ContentEncoding }},
	{"dt-subject", "Component", func(m *message, _ *system) *string { return &m.Component }},
	{"iothub-to", "System.To", func(_ *message, s *system) *string { return &s.To }},
	{"iothub-userid", "System.UserID", func(_ *message, s *system) *string { return &s.UserID }},
	{"iothub-messageschema", "System.Schema", func(_ *message, s *system) *string { return &s.Schema }},
	{"iothub-interface-id", "System.InterfaceID", func(_ *message, s *system) *string { return &s.InterfaceID }},
	{"iothub-connection-device-id", "System.ConnectionDeviceID",
		func(_ *message, s *system) *string { return &s.ConnectionDeviceID }},
	{"iothub-connection-module-id", "System.ConnectionModuleID",
		func(_ *message, s *system) *string { return &s.ConnectionModuleID }},
	{"", "Output", func(m *message, _ *system) *string { return &m.Output }},
	{"", "System.DiagnosticID", func(_ *message, s *system) *string { return &s.DiagnosticID }},
	{"", "System.DiagnosticContext", func(_ *message, s *system) *string { return &s.DiagnosticContext }},
}

// Headers of the other properties. Those of application properties begin with headerApp.
const (
	headerCreated = "iothub-creationtimeutc"
	headerExpires = "iothub-expiry"
	headerApp     = "iothub-app-"
)

// fieldless are properties of cloud-to-device messages that have no field. They become Properties
// under these names, which applications cannot use.
var fieldless = [...]string{"iothub-ack", "iothub-enqueuedtime", "iothub-operation"}

// noSystem is never changed.
var noSystem system

// systemOf returns the rare properties of m, to be read only.
func systemOf(m *message) *system {
	if m.System == nil {
		return &noSystem
	}
	return m.System
}

// checkTexts refuses a message with a text that HTTPS cannot carry.
func checkTexts(m *message) *transport.Error {
	s := systemOf(m)
	for i := range textProperties {
		p := &textProperties[i]
		switch v := *p.at(m, s); {
		case v == "":
		case p.header == "":
			return failed(transport.OpSend, transport.Unsupported, noPlaceError{p.field})
		case !utf8.ValidString(v):
			return invalid("message " + p.field + " is not valid UTF-8")
		}
	}
	return nil
}

// noPlaceError is the cause of the refusal of a message with a field that HTTPS does not have.
type noPlaceError struct{ field string }

func (e noPlaceError) Error() string {
	return "message " + e.field + " has no place over HTTPS; leave it unset, or use MQTT or AMQP"
}

// fitTexts returns the size of the texts as headers; false if a header would change one.
func fitTexts(m *message) (size int, fit bool) {
	s := systemOf(m)
	for i := range textProperties {
		v := *textProperties[i].at(m, s)
		if !plain(v) {
			return 0, false
		}
		size += len(v)
	}
	return size, true
}

// eachSystemProperty calls f for each system property that is set.
func eachSystemProperty(m *message, f func(name, value string)) {
	s := systemOf(m)
	for i := range textProperties {
		if v := *textProperties[i].at(m, s); v != "" {
			f(textProperties[i].header, v)
		}
	}
	if !m.Created.IsZero() {
		f(headerCreated, string(times.AppendISO(make([]byte, 0, times.ISOSize), m.Created)))
	}
	if !m.Expires.IsZero() {
		f(headerExpires, string(times.AppendISO(make([]byte, 0, times.ISOSize), m.Expires)))
	}
}

// readProperties sets the properties of a cloud-to-device message from its headers.
func readProperties(m *message, h http.Header) {
	s := new(system)
	for i := range textProperties {
		if p := &textProperties[i]; p.header != "" {
			*p.at(m, s) = h.Get(p.header)
		}
	}
	if *s != noSystem {
		m.System = s
	}
	m.Created, m.Expires = parseTime(h.Get(headerCreated)), parseTime(h.Get(headerExpires))
	for name, values := range h {
		name = strings.ToLower(name)
		app, is := strings.CutPrefix(name, headerApp)
		if !is || app == "" {
			if !slices.Contains(fieldless[:], name) {
				continue
			}
			app = name
		}
		for _, v := range values {
			m.Properties = append(m.Properties, transport.Property{Name: app, Value: v})
		}
	}
	// net/http returns headers as a map, so their order is lost; sorting makes the order
	// deterministic.
	slices.SortStableFunc(m.Properties, func(a, b transport.Property) int { return cmp.Compare(a.Name, b.Name) })
}
