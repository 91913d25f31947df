package cloudevents

import (
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// Version is the value of the attribute specversion.
const Version = "1.0"

// ContentType is the content type of a message whose body is an event in JSON.
const ContentType = "application/cloudevents+json"

// Limits of one event, for both ways. The size of the data is up to the transport.
const (
	// MaxAttributes is the maximum number of attributes, the required ones included.
	MaxAttributes = 128
	// MaxValue is the maximum size of the name and of the value of an attribute, in bytes: what a user
	// property of MQTT 5 can hold.
	MaxValue = math.MaxUint16
)

// Event is one CloudEvent. An optional attribute with the zero value is absent.
type Event struct {
	// ID, together with Source, identifies the event. Required.
	ID string
	// Source is a URI reference to where the event comes from. Required.
	Source string
	// Type is what happened, such as "com.example.reading". Required.
	Type string
	// Subject is what the event is about, within Source.
	Subject string
	// Time is when it happened.
	Time time.Time
	// DataContentType is the media type of Data. Empty: not known; in JSON, Data is then base64.
	DataContentType string
	// DataSchema is the URI of the schema of Data.
	DataSchema string
	// Extensions are further attributes. Names are of lower-case letters and digits. A value is a
	// string, bool, int32, int within 32 bits, []byte or time.Time. Events that were read have the
	// types of JSON: string, bool and int32; over user properties all values are strings.
	Extensions map[string]any
	// Data is the payload; empty: none. In JSON it is a JSON value for the media types */json and
	// */*+json, a string for text/*, */xml and */*+xml in UTF-8, and base64 otherwise.
	Data []byte
}

// Validate returns an *AttributeError for the first attribute that breaks a rule of the
// specification.
func (e *Event) Validate() error {
	_, err := e.build(builder{check: true})
	return err
}

// AttributeError is the error of an invalid event.
type AttributeError struct {
	// Name is the attribute, or "data". Empty: the fault is that of the whole event.
	Name string
	// Reason says what is wrong, and what to do.
	Reason string
}

// Error returns the attribute and the reason.
func (e *AttributeError) Error() string {
	if e.Name == "" {
		return "cloudevents: " + e.Reason
	}
	return "cloudevents: " + shown(e.Name) + ": " + e.Reason
}

// build adds the attributes and the data to b.
func (e *Event) build(b builder) (builder, error) {
	b.begin(e)
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		b.extension(name, e.Extensions[name])
	}
	b.finish(e)
	return b, b.err
}

// extension adds an attribute of any of the types of the specification.
func (b *builder) extension(name string, value any) {
	switch v := value.(type) {
	case string:
		b.own(name, v)
	case bool:
		b.literal(name, strconv.FormatBool(v))
	case int32:
		b.literal(name, strconv.Itoa(int(v)))
	case int:
		if v != int(int32(v)) {
			b.fail(name, "an integer has 32 bits; use a string for larger ones")
		}
		b.literal(name, strconv.Itoa(v))
	case []byte:
		b.own(name, base64.StdEncoding.EncodeToString(v))
	case time.Time:
		b.ownName(name)
		b.time(name, v)
	default:
		b.fail(name, "an extension is a string, bool, int32, int, []byte or time.Time")
	}
}
