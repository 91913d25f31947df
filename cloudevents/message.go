package cloudevents

import (
	"errors"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/internal/ascii"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// Message returns the message that an Envelope sends as e. Extensions become text.
func (e Event) Message() (*transport.Message, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	m := transport.Message{ID: e.ID, Created: e.Time, ContentType: e.DataContentType, Component: e.Subject, Body: e.Data}
	b, err := e.build(builder{})
	if err != nil {
		return nil, err
	}
	for _, p := range b.props {
		switch p.Name {
		case "specversion", "id", "time", "subject":
		default:
			m.Properties = append(m.Properties, p)
		}
	}
	return &m, nil
}

// ErrNoEvent is the error of Read for a message that is no event.
var ErrNoEvent = errors.New("cloudevents: the message is no event: it has neither the content type " + ContentType +
	" nor the properties of one, and its body is no JSON object with specversion")

// Read returns the event in a message that came: in the structured mode, by its content type or, if
// it has neither that nor properties, by its body; in the binary mode, by its user properties, also
// with the prefix "ce-" that some senders use; or opened by an Envelope. Properties that no event
// can have are left out. Data may be a part of the message's Body.
//
// The error is ErrNoEvent or an *AttributeError.
func Read(m *transport.Message) (Event, error) {
	_, e, err := read(m)
	if errors.Is(err, ErrNoEvent) && m.ID != "" && hasProperty(m.Properties, "source") &&
		hasProperty(m.Properties, "type") {
		return readOpened(m)
	}
	return e, err
}

// read also returns the names of the extensions in the order of the message.
func read(m *transport.Message) (order []string, e Event, err error) {
	if isStructured(m) {
		if t, _, _ := strings.Cut(m.ContentType, ";"); !ascii.EqualFold(strings.Trim(t, " \t"), ContentType) {
			return nil, e, &AttributeError{Reason: "of the formats of events, only " + ContentType + " is read"}
		}
		return readJSON(m.Body)
	}
	if hasProperty(m.Properties, prefixOf(m.Properties)+"specversion") {
		return readBinary(m)
	}
	if m.ContentType == "" && len(m.Properties) == 0 { // as everything over MQTT 3.1.1
		if _, ok := jsonscan.Member(m.Body, "specversion"); ok {
			return readJSON(m.Body)
		}
	}
	return nil, e, ErrNoEvent
}

// isStructured reports whether the content type is that of an event, in JSON or another format.
func isStructured(m *transport.Message) bool {
	const prefix = "application/cloudevents"
	return len(m.ContentType) >= len(prefix) && ascii.EqualFold(m.ContentType[:len(prefix)], prefix)
}

// prefixOf returns the prefix of the attributes' user properties: none, as the binding says, or the
// "ce-" of the binding for HTTP.
func prefixOf(p []transport.Property) string {
	if !hasProperty(p, "specversion") && hasProperty(p, "ce-specversion") {
		return "ce-"
	}
	return ""
}

func hasProperty(p []transport.Property, name string) bool { return repeated(p, name) }

// readBinary reads an event whose attributes are user properties.
func readBinary(m *transport.Message) (order []string, e Event, err error) {
	r := reader{event: Event{DataContentType: m.ContentType, Data: m.Body}}
	prefix := prefixOf(m.Properties)
	for i := range m.Properties {
		p := &m.Properties[i]
		name, ok := strings.CutPrefix(p.Name, prefix)
		if ok && validName(name) && name != "datacontenttype" { // some senders have it twice
			r.property(name, p.Value)
		}
	}
	r.checkVersion()
	return r.finish()
}

// readOpened reads an event that an Envelope opened, or that Event.Message returned.
func readOpened(m *transport.Message) (e Event, err error) {
	r := reader{event: Event{ID: m.ID, Time: m.Created, Subject: m.Component, Data: m.Body}}
	if r.event.DataContentType, err = (Envelope{}).contentType(m); err != nil {
		return Event{}, err
	}
	if m.CorrelationID != "" {
		r.property("correlationid", m.CorrelationID)
	}
	for i := range m.Properties {
		if p := &m.Properties[i]; validName(p.Name) {
			r.property(p.Name, p.Value)
		}
	}
	_, e, err = r.finish()
	return e, err
}

// canonical returns the text of an extension that was read.
func canonical(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case int32:
		return strconv.Itoa(int(v))
	}
	return ""
}
