package cloudevents

import (
	"bytes"
	"encoding/base64"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
)

// MarshalJSON returns e in the JSON format. The error is an *AttributeError, also for Data that is
// not the JSON that DataContentType says.
func (e Event) MarshalJSON() ([]byte, error) {
	b, err := e.build(builder{json: true})
	if err != nil {
		return nil, err
	}
	return b.text, nil
}

// UnmarshalJSON sets e to the event in text. Its data shares no memory with text. A missing
// datacontenttype becomes "application/json" if there is a member data. The error is an
// *AttributeError.
func (e *Event) UnmarshalJSON(text []byte) error {
	_, event, err := readJSON(bytes.Clone(text))
	if err != nil {
		return err
	}
	*e = event
	return nil
}

// reader collects the attributes of one event.
type reader struct {
	event   Event
	order   []string // the extensions in the order of the text
	seen    []string
	version string
	data    []byte // raw, nil for none
	base64  []byte // raw, nil for none
	err     error
}

func (r *reader) fail(name, reason string) {
	if r.err == nil {
		r.err = &AttributeError{Name: name, Reason: reason}
	}
}

// readJSON returns the event in text, whose data may be a part of text, and the names of its
// extensions in the order of the text.
func readJSON(text []byte) (order []string, event Event, err error) {
	var r reader
	if !utf8.Valid(text) {
		r.fail("", "the text is not UTF-8")
	} else if !jsonscan.Members(text, r.member) {
		r.fail("", "the text is not one JSON object, or nested deeper than 64 levels")
	}
	r.checkVersion()
	r.readData()
	return r.finish()
}

// finish returns the event, if it is valid.
func (r *reader) finish() (order []string, e Event, err error) {
	if r.err == nil {
		r.err = r.event.Validate()
	}
	if r.err != nil {
		return nil, Event{}, r.err
	}
	return r.order, r.event, nil
}

// member reads one member; value is raw.
func (r *reader) member(name string, value []byte) {
	if r.err != nil {
		return
	}
	r.once(name)
	switch {
	case name == "data":
		r.data = value
	case string(value) == "null": // the same as absent
	case name == "data_base64":
		r.base64 = value
	case !validName(name):
		r.fail(name, "a name is of lower-case letters and digits")
	case fixed(name):
		r.fixed(name, r.str(name, value))
	default:
		r.extension(name, r.value(name, value))
	}
}

// property reads one attribute that comes as text.
func (r *reader) property(name, value string) {
	r.once(name)
	if fixed(name) {
		r.fixed(name, value)
	} else {
		r.extension(name, value)
	}
}

// once checks that no name comes again, and how many there are.
func (r *reader) once(name string) {
	for _, s := range r.seen {
		if s == name {
			r.fail(name, "it is there twice")
		}
	}
	if r.seen = append(r.seen, name); len(r.seen) > MaxAttributes+2 && r.err == nil { // two members are data
		r.fail(name, "an event has 128 attributes at most")
	}
}

// fixed sets an attribute of the specification.
func (r *reader) fixed(name, text string) {
	if text == "" {
		r.fail(name, "it is empty")
	}
	switch name {
	case "specversion":
		r.version = text
	case "time":
		at, ok := parseTime(text)
		if !ok {
			r.fail(name, "it is not a time of RFC 3339, such as \"2018-04-05T17:31:00Z\"")
		}
		r.event.Time = at
	case "data":
		r.fail(name, "the name is reserved")
	default:
		*r.event.field(name) = text
	}
}

// field returns the string attribute of that name.
func (e *Event) field(name string) *string {
	switch name {
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "type":
		return &e.Type
	case "subject":
		return &e.Subject
	case "datacontenttype":
		return &e.DataContentType
	}
	return &e.DataSchema
}

func (r *reader) extension(name string, value any) {
	if r.event.Extensions == nil {
		r.event.Extensions = map[string]any{}
	}
	r.event.Extensions[name], r.order = value, append(r.order, name)
}

// value returns the value of a member that is an extension.
func (r *reader) value(name string, raw []byte) any {
	switch raw[0] {
	case '"':
		return r.str(name, raw)
	case 't', 'f':
		return raw[0] == 't'
	}
	n, ok := jsonscan.Int(raw)
	if !ok || n < math.MinInt32 || n > math.MaxInt32 {
		r.fail(name, "it is not a string, a boolean or an integer of 32 bits")
	}
	return int32(n)
}

// str returns the text of a JSON string.
func (r *reader) str(name string, raw []byte) string {
	if raw[0] != '"' {
		r.fail(name, "it is not a string")
	} else if loneSurrogate(raw) {
		r.fail(name, "it has half of a surrogate pair")
	}
	return jsonscan.Text(raw)
}

func (r *reader) checkVersion() {
	switch r.version {
	case Version:
	case "":
		r.fail("specversion", "it is required")
	default:
		r.fail("specversion", "the version is not 1.0")
	}
}

func (r *reader) readData() {
	e := &r.event
	m, _ := parseMediaType(e.DataContentType)
	switch {
	case r.err != nil, r.data == nil && r.base64 == nil:
	case r.data != nil && r.base64 != nil:
		r.fail("data", "data and data_base64 exclude each other")
	case r.base64 != nil:
		data, err := base64.StdEncoding.DecodeString(r.str("data_base64", r.base64))
		if err != nil {
			r.fail("data_base64", "it is not base64")
		}
		e.Data = data
	case e.DataContentType == "":
		e.DataContentType, e.Data = "application/json", r.data
	case m.isJSON():
		e.Data = r.data
	case string(r.data) == "null":
	case m.charset != "" && !m.isText() && !strings.EqualFold(m.charset, "utf-8"):
		r.fail("data", "a text in this character set comes as data_base64")
	default:
		e.Data = []byte(r.str("data", r.data))
	}
}

// loneSurrogate reports whether a raw JSON string has an escaped surrogate without its other half.
func loneSurrogate(raw []byte) bool {
	for i := 0; i+1 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		high := surrogate(raw[i+1:])
		i += 4
		if high == 0 {
			continue
		}
		if high != 'h' || len(raw) < i+7 || raw[i+1] != '\\' || raw[i+2] != 'u' || surrogate(raw[i+3:]) != 'l' {
			return true
		}
		i += 6
	}
	return false
}

// surrogate returns 'h' or 'l' if the four digits are those of a high or low surrogate, else 0.
func surrogate(digits []byte) byte {
	if digits[0]|0x20 != 'd' {
		return 0
	}
	switch c := digits[1] | 0x20; {
	case c >= '8'|0x20 && c <= '9'|0x20, c == 'a', c == 'b':
		return 'h'
	case c >= 'c' && c <= 'f':
		return 'l'
	}
	return 0
}
