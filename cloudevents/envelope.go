package cloudevents

import (
	"errors"
	"strings"

	"github.com/hubline-iot/hubline/internal/ascii"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// Envelope makes messages events, and opens events that come. It is a dialect.Envelope. Fields of a
// Message and attributes of the event stand for each other:
//
//	ID               id
//	Created          time
//	ContentType      datacontenttype
//	ContentEncoding  the charset of datacontenttype, which then has no other parameter
//	Component        subject
//	CorrelationID    correlationid, of the extension Correlation
//	Expires          expirytime, of the extension Expiry Time
//	Properties       type, source and dataschema, and extensions by their names
//	Body             data
//
// A property with another name than lower-case letters and digits, a reserved name or a name that
// is there twice refuses the message with an *AttributeError. So does a body that is not the JSON
// that its ContentType says. A ResponseTopic needs MQTT 5: without it, it is Unsupported.
//
// Output and the fields of System are a hub's. They have no attribute and refuse the message as
// Unsupported; the schema of the data is the property "dataschema". To a hub, events need no
// Envelope: see the package comment.
//
// In a message that comes and is no event, nothing changes: properties that no event can have, such
// as those of a broker, stay, and so does everything in a message that is not a valid event.
type Envelope struct {
	// Source is the attribute of messages without a property "source". It needs to be unique for each
	// device, for example "urn:site:7:boiler".
	Source string
	// Type is the attribute of messages without a property "type".
	Type string
	// ContentType is set for messages without one. Empty: their data goes as base64 in the structured
	// mode, because nothing says that it is text or JSON.
	ContentType string
	// Structured selects the structured mode over MQTT 5, too. MQTT 3.1.1 has no other.
	Structured bool
}

var errResponseTopic = &transport.Error{Kind: transport.Unsupported, Op: transport.OpSend, Err: errors.New("message " +
	"ResponseTopic has no place in an event, and none in MQTT 3.1.1; use MQTT 5, or a property")}

// Seal sets dst to the message that carries the event: with properties in the binary mode unless
// Structured is set, else in the structured mode. dst may share memory with m.
func (v Envelope) Seal(dst, m *transport.Message, properties bool) error {
	e := Event{ID: m.ID, Source: v.Source, Type: v.Type, Subject: m.Component, Time: m.Created, Data: m.Body}
	if m.ResponseTopic != "" && !properties {
		return errResponseTopic
	}
	if refused := operr.NoPlaceOutsideHubs(m, "CloudEvents"); refused != nil {
		return refused
	}
	var err error
	if e.DataContentType, err = v.contentType(m); err != nil {
		return err
	}
	var replaced [4]string // attributes that come from Properties
	n := 0
	for i := range m.Properties {
		p := &m.Properties[i]
		switch p.Name {
		case "source", "type", "subject", "dataschema":
			for _, r := range replaced[:n] {
				if r == p.Name {
					return twice(p.Name)
				}
			}
			*e.field(p.Name), replaced[n] = p.Value, p.Name
			n++
		}
	}
	b := builder{json: !properties || v.Structured}
	if b.json {
		b.text = make([]byte, 0, len(m.Body)*4/3+64*(8+len(m.Properties)))
	} else {
		b.props = make([]transport.Property, 0, 8+len(m.Properties))
	}
	b.begin(&e)
	b.optional("correlationid", m.CorrelationID)
	b.time("expirytime", m.Expires)
	for i := range m.Properties {
		switch p := &m.Properties[i]; {
		case p.Name == "source", p.Name == "type", p.Name == "subject", p.Name == "dataschema":
		case p.Name == "correlationid" && m.CorrelationID != "", p.Name == "expirytime" && !m.Expires.IsZero(),
			repeated(m.Properties[:i], p.Name):
			return twice(p.Name)
		default:
			b.own(p.Name, p.Value)
		}
	}
	b.finish(&e)
	if b.err != nil {
		return b.err
	}
	*dst = transport.Message{
		CorrelationID: m.CorrelationID, Expires: m.Expires, Topic: m.Topic, ResponseTopic: m.ResponseTopic,
		Retain: m.Retain, AtMostOnce: m.AtMostOnce, Redelivered: m.Redelivered,
	}
	if b.json {
		dst.ContentType, dst.ContentEncoding, dst.Body = ContentType, "utf-8", b.text
	} else {
		dst.ContentType, dst.Properties, dst.Body = e.DataContentType, b.props, m.Body
		if m.ContentEncoding == "utf-8" {
			dst.ContentEncoding = "utf-8" // MQTT 5 has an indicator for it
		}
	}
	return nil
}

func twice(name string) error {
	return &AttributeError{Name: name, Reason: "it is there twice; give each attribute once"}
}

func repeated(earlier []transport.Property, name string) bool {
	for i := range earlier {
		if earlier[i].Name == name {
			return true
		}
	}
	return false
}

// contentType returns the datacontenttype of m.
func (v Envelope) contentType(m *transport.Message) (string, error) {
	t := m.ContentType
	if t == "" {
		t = v.ContentType
	}
	if m.ContentEncoding == "" {
		return t, nil
	}
	media, ok := parseMediaType(t)
	if !ok || media.charset != "" && !ascii.EqualFold(media.charset, m.ContentEncoding) || !token(m.ContentEncoding) {
		return "", &AttributeError{Name: "datacontenttype", Reason: "it has no place for the message's ContentEncoding; " +
			"give the message a ContentType without charset, or no ContentEncoding"}
	}
	if media.charset != "" {
		return t, nil
	}
	return t + "; charset=" + m.ContentEncoding, nil
}

// Open replaces an event by the message that it was made of. A message that is no event stays as it
// is.
func (v Envelope) Open(m *transport.Message) {
	order, e, err := read(m)
	if err != nil {
		return
	}
	p := []transport.Property{{Name: "source", Value: e.Source}, {Name: "type", Value: e.Type}}
	if e.DataSchema != "" {
		p = append(p, transport.Property{Name: "dataschema", Value: e.DataSchema})
	}
	for _, name := range order {
		text := canonical(e.Extensions[name])
		switch at, ok := parseTime(text); {
		case name == "correlationid":
			m.CorrelationID = text
		case name == "expirytime" && ok:
			m.Expires = at
		default:
			p = append(p, transport.Property{Name: name, Value: text})
		}
	}
	prefix := prefixOf(m.Properties)
	for _, r := range m.Properties { // in the structured mode, attributes among them are copies
		if name, ok := strings.CutPrefix(r.Name, prefix); !ok || !validName(name) {
			p = append(p, r)
		}
	}
	m.ID, m.Created, m.Component, m.Properties, m.Body = e.ID, e.Time, e.Subject, p, e.Data
	m.ContentType, m.ContentEncoding = e.DataContentType, ""
	if t, _ := parseMediaType(e.DataContentType); t.only {
		m.ContentType, m.ContentEncoding = t.major+"/"+t.minor, strings.ToLower(t.charset)
	}
}
