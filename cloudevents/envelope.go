package cloudevents

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/hubline-iot/hubline/transport"
)

// Envelope makes messages events, and opens events that come. It is a dialect.Envelope. Fields of a
// Message and attributes of the event stand for each other:
//
//	ID               id
//	Created          time
//	ContentType      datacontenttype
//	ContentEncoding  the parameter charset of datacontenttype
//	Component        subject
//	CorrelationID    correlationid, of the extension Correlation
//	Expires          expirytime, of the extension Expiry Time
//	Properties       type, source and dataschema, and extensions by their names
//	Body             data
//
// A message that makes no valid event is refused with an error that names the attribute. A
// ResponseTopic needs MQTT 5; Output and System are a hub's. Without their place they are
// Unsupported.
//
// A message that comes and is no valid event stays as it is.
type Envelope struct {
	// Source is the attribute of messages without a property "source". It needs to be unique for each
	// device, for example "urn:site:7:boiler".
	Source string
	// Type is the attribute of messages without a property "type".
	Type string
	// ContentType is set for messages without one. Empty: their data goes as base64 in the structured
	// mode, because nothing says that it is text or JSON. So does text that is not in UTF-8.
	ContentType string
	// Structured selects the structured mode over MQTT 5, too. MQTT 3.1.1 has no other.
	Structured bool
}

// The attributes of the extensions that have a field of Message.
const correlationID, expiryTime = "correlationid", "expirytime"

// Seal sets dst to the message that carries the event. dst may share memory with m.
func (v Envelope) Seal(dst, m *transport.Message, properties bool) error {
	if field := noPlace(m, properties); field != "" {
		return &transport.Error{Kind: transport.Unsupported, Op: transport.OpSend,
			Err: errors.New("message " + field + " has no place in an event; leave it empty, or use a property")}
	}
	e, err := v.event(m)
	if err != nil {
		return fmt.Errorf("cloudevents: %w", err)
	}
	*dst = transport.Message{
		CorrelationID: m.CorrelationID, Expires: m.Expires, Topic: m.Topic, ResponseTopic: m.ResponseTopic,
		Retain: m.Retain, AtMostOnce: m.AtMostOnce, Redelivered: m.Redelivered,
	}
	if properties && !v.Structured {
		dst.ContentType, dst.Properties, dst.Body = e.DataContentType(), attributes(e), m.Body
		return nil
	}
	dst.ContentType, dst.ContentEncoding = event.ApplicationCloudEventsJSON, "utf-8"
	dst.Body, err = e.MarshalJSON()
	return err
}

// noPlace returns the name of a field that the event cannot carry, empty for none.
func noPlace(m *transport.Message, properties bool) string {
	switch {
	case m.Output != "":
		return "Output"
	case m.System != nil:
		return "System"
	case m.ResponseTopic != "" && !properties:
		return "ResponseTopic"
	}
	return ""
}

// event returns the valid event of m.
func (v Envelope) event(m *transport.Message) (*event.Event, error) {
	e := event.New()
	e.SetID(m.ID)
	e.SetSource(v.Source)
	e.SetType(v.Type)
	if m.Component != "" {
		e.SetSubject(m.Component)
	}
	if !m.Created.IsZero() {
		e.SetTime(m.Created)
	}
	media, err := v.mediaType(m)
	if err != nil {
		return nil, err
	}
	if media != "" {
		e.SetDataContentType(media)
	}
	seen := map[string]bool{}
	set := func(name, value string) error {
		switch {
		case seen[name]:
			return fmt.Errorf("%q is there twice; give each attribute once", name)
		case strings.ToLower(name) != name:
			return fmt.Errorf("%q: a name is of lower-case letters and digits; rename it", name)
		}
		seen[name] = true
		switch name {
		case "source":
			e.SetSource(value)
		case "type":
			e.SetType(value)
		case "subject":
			e.SetSubject(value)
		case "dataschema":
			e.SetDataSchema(value)
		default:
			return e.Context.SetExtension(name, value)
		}
		return nil
	}
	if m.CorrelationID != "" {
		err = errors.Join(err, set(correlationID, m.CorrelationID))
	}
	if !m.Expires.IsZero() {
		err = errors.Join(err, set(expiryTime, types.FormatTime(m.Expires)))
	}
	for _, p := range m.Properties {
		err = errors.Join(err, set(p.Name, p.Value))
	}
	if err = errors.Join(err, e.Validate()); err != nil {
		return nil, err
	}
	if len(m.Body) > 0 {
		err = e.SetData(media, m.Body)
		isJSON := json.Valid(m.Body) && utf8.Valid(m.Body)
		if err == nil && strings.HasSuffix(e.DataMediaType(), "json") && !isJSON {
			err = errors.New("data is not the JSON that datacontenttype says")
		}
	}
	e.DataBase64 = media == "" || !isText(e.DataMediaType()) || !utf8.Valid(m.Body)
	return &e, err
}

// mediaType returns the datacontenttype of m.
func (v Envelope) mediaType(m *transport.Message) (string, error) {
	text := m.ContentType
	if text == "" {
		text = v.ContentType
	}
	if m.ContentEncoding == "" {
		return text, nil
	}
	media, parameters, err := mime.ParseMediaType(text)
	if err != nil {
		return "", fmt.Errorf("datacontenttype: a ContentEncoding needs a ContentType: %w", err)
	}
	if parameters["charset"] == "" {
		parameters["charset"] = m.ContentEncoding
	}
	return mime.FormatMediaType(media, parameters), nil
}

// attributes returns the user properties of the binary mode.
func attributes(e *event.Event) []transport.Property {
	all := []transport.Property{
		{Name: "specversion", Value: e.SpecVersion()}, {Name: "id", Value: e.ID()},
		{Name: "source", Value: e.Source()}, {Name: "type", Value: e.Type()},
	}
	optional := func(name, value string) {
		if value != "" {
			all = append(all, transport.Property{Name: name, Value: value})
		}
	}
	optional("subject", e.Subject())
	optional("dataschema", e.DataSchema())
	if at := e.Time(); !at.IsZero() {
		optional("time", types.FormatTime(at))
	}
	extensions := e.Extensions()
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		text, _ := types.Format(extensions[name])
		all = append(all, transport.Property{Name: name, Value: text})
	}
	return all
}

// Open replaces an event by the message that it was made of.
func (v Envelope) Open(m *transport.Message) {
	e, err := Read(m)
	if err != nil {
		return
	}
	p := []transport.Property{{Name: "source", Value: e.Source()}, {Name: "type", Value: e.Type()}}
	if schema := e.DataSchema(); schema != "" {
		p = append(p, transport.Property{Name: "dataschema", Value: schema})
	}
	extensions := e.Extensions()
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		text, _ := types.Format(extensions[name])
		at, err := types.ParseTime(text)
		switch {
		case name == correlationID:
			m.CorrelationID = text
		case name == expiryTime && err == nil:
			m.Expires = at
		default:
			p = append(p, transport.Property{Name: name, Value: text})
		}
	}
	m.ID, m.Created, m.Component, m.Properties, m.Body = e.ID(), e.Time(), e.Subject(), p, e.Data()
	m.ContentType, m.ContentEncoding = e.DataContentType(), ""
	if media, parameters, err := mime.ParseMediaType(m.ContentType); err == nil && len(parameters) == 1 &&
		parameters["charset"] != "" {
		m.ContentType, m.ContentEncoding = media, strings.ToLower(parameters["charset"])
	}
}

// unmarshal is e.UnmarshalJSON, which panics at some malformed events.
func unmarshal(e *event.Event, body []byte) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("cloudevents: the JSON of the event is malformed")
		}
	}()
	return e.UnmarshalJSON(body)
}

// ErrNoEvent is the error of Read for a message that is no event.
var ErrNoEvent = errors.New("cloudevents: the message is no event: it has neither the content type of one nor the " +
	"property specversion, and its body is no JSON object with specversion")

// Read returns the event in a message that came: in the structured mode, by its content type or, if
// it has neither that nor properties, by its body; in the binary mode, by its user properties.
// Properties that no event can have are left out. The error is ErrNoEvent, or names the attribute.
func Read(m *transport.Message) (event.Event, error) {
	e := event.New()
	structured := strings.HasPrefix(strings.ToLower(m.ContentType), event.ApplicationCloudEventsJSON)
	bare := m.ContentType == "" && len(m.Properties) == 0 // as everything over MQTT 3.1.1
	version := slices.IndexFunc(m.Properties, func(p transport.Property) bool { return p.Name == "specversion" })
	var err error
	switch {
	case structured || bare:
		if err = unmarshal(&e, m.Body); err != nil && bare {
			return e, ErrNoEvent
		}
		if e.DataContentType() == "" && !e.DataBase64 && len(e.Data()) > 0 { // the JSON format's default
			e.SetDataContentType(event.ApplicationJSON)
		}
	case version < 0:
		return e, ErrNoEvent
	default:
		err = readBinary(&e, m)
	}
	if err == nil {
		err = e.Validate()
	}
	if err != nil {
		return e, fmt.Errorf("cloudevents: %w", err)
	}
	return e, nil
}

// readBinary reads an event whose attributes are user properties.
func readBinary(e *event.Event, m *transport.Message) error {
	for _, p := range m.Properties {
		switch p.Name {
		case "specversion":
			e.SetSpecVersion(p.Value)
		case "id":
			e.SetID(p.Value)
		case "source":
			e.SetSource(p.Value)
		case "type":
			e.SetType(p.Value)
		case "subject":
			e.SetSubject(p.Value)
		case "dataschema":
			e.SetDataSchema(p.Value)
		case "time":
			at, err := time.Parse(time.RFC3339Nano, p.Value)
			if err != nil {
				return fmt.Errorf("time: %w", err)
			}
			e.SetTime(at)
		case "datacontenttype": // some senders have it twice
		default:
			_ = e.Context.SetExtension(p.Name, p.Value) // others are not of the event
		}
	}
	if m.ContentType != "" {
		e.SetDataContentType(m.ContentType)
	}
	e.DataEncoded = m.Body
	return nil
}

// isText reports whether data of this type, in UTF-8, goes into the structured mode as JSON or as a
// string.
func isText(media string) bool {
	return strings.HasPrefix(media, "text/") || strings.HasSuffix(media, "json") || strings.HasSuffix(media, "xml")
}
