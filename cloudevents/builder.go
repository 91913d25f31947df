package cloudevents

import (
	"encoding/base64"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// builder writes one event: checked attributes become members of a JSON object, or user properties.
// The first fault stays in err.
type builder struct {
	check bool // only check
	json  bool
	text  []byte
	props []transport.Property
	count int
	err   error
}

func (b *builder) fail(name, reason string) {
	if b.err == nil {
		b.err = &AttributeError{Name: name, Reason: reason}
	}
}

// begin adds the attributes of the specification, in the order of its examples.
func (b *builder) begin(e *Event) {
	if b.json {
		b.text = append(b.text, '{')
	}
	b.attribute("specversion", Version)
	b.required("id", e.ID, idHint)
	b.required("source", e.Source, "give a URI reference, such as \"urn:site:7\"")
	if !validReference(e.Source, false) {
		b.fail("source", "it is not a URI reference of RFC 3986; escape other characters as in \"%20\"")
	}
	b.required("type", e.Type, "give a name, such as \"com.example.reading\"")
	b.optional("subject", e.Subject)
	b.time("time", e.Time)
	b.optional("dataschema", e.DataSchema)
	if e.DataSchema != "" && !validReference(e.DataSchema, true) {
		b.fail("dataschema", "it is not an absolute URI of RFC 3986")
	}
	if e.DataContentType != "" {
		if _, ok := parseMediaType(e.DataContentType); !ok {
			b.fail("datacontenttype", "it is not a media type of RFC 2046, such as \"application/json\"")
		}
		if b.json { // binary mode has a property of MQTT for it
			b.attribute("datacontenttype", e.DataContentType)
		}
	}
}

const idHint = "give the message an ID"

func (b *builder) required(name, value, fix string) {
	if value == "" {
		b.fail(name, "it is required; "+fix)
	}
	b.attribute(name, value)
}

func (b *builder) optional(name, value string) {
	if value != "" {
		b.attribute(name, value)
	}
}

// time adds t, unless it is zero.
func (b *builder) time(name string, t time.Time) {
	if t.IsZero() {
		return
	}
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		b.fail(name, "a time has a year from 0 to 9999")
	}
	var buffer [len(time.RFC3339Nano)]byte
	text := t.AppendFormat(buffer[:0], time.RFC3339Nano)
	if b.json {
		b.member(name)
		b.text = append(append(append(b.text, '"'), text...), '"')
	} else if b.room(name) {
		b.props = append(b.props, transport.Property{Name: name, Value: string(text)})
	}
}

// own adds an extension.
func (b *builder) own(name, value string) {
	b.ownName(name)
	b.attribute(name, value)
}

// ownName checks the name of an extension.
func (b *builder) ownName(name string) {
	if !validName(name) {
		b.fail(name, "a name is of lower-case letters and digits; rename it")
	} else if fixed(name) {
		b.fail(name, "the name is reserved; use the field that stands for it, or another name")
	}
}

// fixed reports whether no extension can have this name.
func fixed(name string) bool {
	switch name {
	case "specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "data":
		return true
	}
	return false
}

// attribute adds a string.
func (b *builder) attribute(name, value string) {
	if !validString(value) {
		b.fail(name, "the value has a control character, a code point that is no character, or is not UTF-8")
	}
	if len(name) > MaxValue || len(value) > MaxValue {
		b.fail(name, "names and values have 65535 bytes at most")
	}
	if b.json {
		b.member(name)
		b.text = appendString(b.text, value)
	} else if b.room(name) {
		b.props = append(b.props, transport.Property{Name: name, Value: value})
	}
}

// literal adds a number or a boolean.
func (b *builder) literal(name, value string) {
	b.ownName(name)
	if b.json {
		b.member(name)
		b.text = append(b.text, value...)
	} else if b.room(name) {
		b.props = append(b.props, transport.Property{Name: name, Value: value})
	}
}

// room counts an attribute, and reports whether it becomes a user property.
func (b *builder) room(name string) bool {
	if b.count++; b.count > MaxAttributes {
		b.fail(name, "an event has 128 attributes at most")
	}
	return b.err == nil && !b.check
}

// member begins a member of the object. Names of attributes need no escapes.
func (b *builder) member(name string) {
	b.room(name)
	if len(b.text) > 1 {
		b.text = append(b.text, ',')
	}
	b.text = append(append(append(b.text, '"'), name...), '"', ':')
}

// finish adds the data.
func (b *builder) finish(e *Event) {
	m, _ := parseMediaType(e.DataContentType)
	isJSON := m.isJSON()
	if b.json && isJSON && len(e.Data) > 0 && (!utf8.Valid(e.Data) || !jsonscan.Valid(e.Data)) {
		b.fail("data", "it is not the JSON that datacontenttype says, or nested deeper than 64 levels; give another "+
			"content type")
	}
	if !b.json || b.err != nil {
		return
	}
	switch {
	case len(e.Data) == 0:
	case isJSON:
		b.text = append(append(b.text, `,"data":`...), e.Data...)
	case m.isText() && utf8.Valid(e.Data):
		b.text = append(b.text, `,"data":`...)
		b.text = appendString(b.text, e.Data)
	default:
		b.text = append(b.text, `,"data_base64":"`...)
		b.text = base64.StdEncoding.AppendEncode(b.text, e.Data)
		b.text = append(b.text, '"')
	}
	b.text = append(b.text, '}')
}

// appendString appends a JSON string. s is UTF-8.
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(append(dst, s[from:i]...), '\\')
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, c)
		case '\n':
			dst = append(dst, 'n')
		case '\r':
			dst = append(dst, 'r')
		case '\t':
			dst = append(dst, 't')
		default:
			dst = append(dst, 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}
