package amqp

import (
	"fmt"
	"math"
	"slices"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// Descriptors of performatives [AMQP 1.0, 2.7, 5.3].
const (
	codeOpen        = 0x10
	codeAttach      = 0x12
	codeFlow        = 0x13
	codeTransfer    = 0x14
	codeDisposition = 0x15
	codeDetach      = 0x16
	codeClose       = 0x18
	codeMechanisms  = 0x40
	codeOutcome     = 0x44
)

// composite is a composite type that a peer may send, with its fields in order. The last ones may
// be left out.
type composite struct {
	name   string
	code   uint64
	fields []field
	// content is set for sections of messages. A type that the library does not know there ends the
	// link only.
	content bool
}

// field is what a field may hold. Null is allowed unless must is set.
type field struct {
	name string
	is   wire.Types
	must bool
	// least and most bound an unsigned number, or the length of a binary or text. most 0: no upper
	// bound.
	least, most uint64
	// keys and items bound what a map or an array holds. 0: anything.
	keys, items wire.Types
	// words are all that a text may be.
	words []string
	// of are the composites of which a described value must be one. nil: anything.
	of []*composite
}

// maxFields is the most fields that a performative has.
const maxFields = 14

// Kinds of fields that come often.
func uint32Of(name string) field { return field{name: name, is: wire.IsUint} }
func must32(name string) field   { return field{name: name, is: wire.IsUint, must: true} }
func boolean(name string) field  { return field{name: name, is: wire.IsBoolean} }
func text(name string) field     { return field{name: name, is: wire.IsText} }
func symbols(name string) field {
	return field{name: name, is: wire.IsText | wire.IsArray, items: wire.IsText}
}
func fieldMap(name string) field {
	return field{name: name, is: wire.IsMap, keys: wire.IsText}
}
func one(name string, of ...*composite) field {
	return field{name: name, is: wire.IsDescribed, of: of}
}

// The composites inside of performatives [2.8.14, 3.4, 3.5].
var (
	errorType = &composite{name: "error", code: 0x1d, fields: []field{
		{name: "condition", is: wire.IsText, must: true}, text("description"), fieldMap("info"),
	}}

	stateTypes = []*composite{
		{name: "received", code: 0x23, fields: []field{
			must32("section-number"), {name: "section-offset", is: wire.IsUlong, must: true},
		}},
		{name: "accepted", code: 0x24, fields: nil},
		{name: "rejected", code: 0x25, fields: []field{one("error", errorType)}},
		{name: "released", code: 0x26, fields: nil},
		{name: "modified", code: 0x27, fields: []field{
			boolean("delivery-failed"), boolean("undeliverable-here"), {name: "message-annotations", is: wire.IsMap},
		}},
	}

	expiryPolicies = []string{"link-detach", "session-end", "connection-close", "never"}

	sourceType = &composite{name: "source", code: 0x28, fields: []field{
		text("address"), {name: "durable", is: wire.IsUint, most: 2},
		{name: "expiry-policy", is: wire.IsText, words: expiryPolicies}, uint32Of("timeout"), boolean("dynamic"),
		fieldMap("dynamic-node-properties"), text("distribution-mode"),
		{name: "filter", is: wire.IsMap, keys: wire.IsText, items: wire.IsDescribed | wire.IsNull},
		one("default-outcome", stateTypes...), symbols("outcomes"), symbols("capabilities"),
	}}
	targetType = &composite{name: "target", code: 0x29, fields: []field{
		text("address"), {name: "durable", is: wire.IsUint, most: 2},
		{name: "expiry-policy", is: wire.IsText, words: expiryPolicies}, uint32Of("timeout"), boolean("dynamic"),
		fieldMap("dynamic-node-properties"), symbols("capabilities"),
	}}
)

// minFrameSize is the smallest max-frame-size [2.4.1]. The library panics when a frame has no room
// for a part of a message.
const minFrameSize = 512

// performatives are those that a peer may send.
var performatives = []*composite{
	{name: "open", code: codeOpen, fields: []field{
		{name: "container-id", is: wire.IsText, must: true}, text("hostname"),
		{name: "max-frame-size", is: wire.IsUint, least: minFrameSize}, {name: "channel-max", is: wire.IsUshort},
		uint32Of("idle-time-out"),
		symbols("outgoing-locales"), symbols("incoming-locales"),
		symbols("offered-capabilities"), symbols("desired-capabilities"),
		fieldMap("properties"),
	}},
	{name: "begin", code: codeBegin, fields: []field{
		{name: "remote-channel", is: wire.IsUshort, must: true}, // sessions are begun by this side only
		must32("next-outgoing-id"), must32("incoming-window"), must32("outgoing-window"), uint32Of("handle-max"),
		symbols("offered-capabilities"), symbols("desired-capabilities"), fieldMap("properties"),
	}},
	{name: "attach", code: codeAttach, fields: []field{
		{name: "name", is: wire.IsText, must: true}, must32("handle"), {name: "role", is: wire.IsBoolean, must: true},
		{name: "snd-settle-mode", is: wire.IsUbyte, most: 2}, {name: "rcv-settle-mode", is: wire.IsUbyte, most: 1},
		one("source", sourceType), one("target", targetType),
		{name: "unsettled", is: wire.IsMap, keys: wire.IsText, items: wire.IsDescribed | wire.IsNull},
		boolean("incomplete-unsettled"), uint32Of("initial-delivery-count"),
		{name: "max-message-size", is: wire.IsUlong},
		symbols("offered-capabilities"), symbols("desired-capabilities"), fieldMap("properties"),
	}},
	{name: "flow", code: codeFlow, fields: []field{
		uint32Of("next-incoming-id"), must32("incoming-window"), must32("next-outgoing-id"), must32("outgoing-window"),
		uint32Of("handle"),
		uint32Of("delivery-count"), uint32Of("link-credit"), uint32Of("available"),
		boolean("drain"), boolean("echo"), fieldMap("properties"),
	}},
	{name: "transfer", code: codeTransfer, fields: []field{
		must32("handle"), uint32Of("delivery-id"), {name: "delivery-tag", is: wire.IsBinary, most: 32},
		uint32Of("message-format"),
		boolean("settled"), boolean("more"), {name: "rcv-settle-mode", is: wire.IsUbyte, most: 1},
		one("state", stateTypes...),
		boolean("resume"), boolean("aborted"), boolean("batchable"),
	}},
	{name: "disposition", code: codeDisposition, fields: []field{
		{name: "role", is: wire.IsBoolean, must: true}, must32("first"), uint32Of("last"), boolean("settled"),
		one("state", stateTypes...), boolean("batchable"),
	}},
	{name: "detach", code: codeDetach, fields: []field{must32("handle"), boolean("closed"), one("error", errorType)}},
	{name: "end", code: codeEnd, fields: []field{one("error", errorType)}},
	{name: "close", code: codeClose, fields: []field{one("error", errorType)}},
	{name: "sasl-mechanisms", code: codeMechanisms, fields: []field{
		{name: "sasl-server-mechanisms", is: wire.IsText | wire.IsArray, items: wire.IsText, must: true},
	}},
	{name: "sasl-outcome", code: codeOutcome, fields: []field{
		{name: "code", is: wire.IsUbyte, must: true}, {name: "additional-data", is: wire.IsBinary},
	}},
}

// sections are those of a message, in the order in which they come [3.2]. Those from data to
// amqp-value are its body.
var sections = []struct {
	name       string
	is         wire.Types
	keys       wire.Types
	fields     []field // of a list
	body, many bool
}{
	{name: "header", is: wire.IsList, fields: []field{
		boolean("durable"), {name: "priority", is: wire.IsUbyte}, uint32Of("ttl"), boolean("first-acquirer"),
		uint32Of("delivery-count"),
	}},
	{name: "delivery-annotations", is: wire.IsMap},
	{name: "message-annotations", is: wire.IsMap},
	{name: "properties", is: wire.IsList, fields: []field{
		{name: "message-id", is: idTypes}, {name: "user-id", is: wire.IsBinary}, {name: "to", is: wire.IsAny},
		text("subject"),
		{name: "reply-to", is: wire.IsAny}, {name: "correlation-id", is: idTypes}, text("content-type"),
		text("content-encoding"),
		{name: "absolute-expiry-time", is: wire.IsTimestamp}, {name: "creation-time", is: wire.IsTimestamp},
		text("group-id"),
		uint32Of("group-sequence"), text("reply-to-group-id"),
	}},
	{name: "application-properties", is: wire.IsMap, keys: wire.IsText},
	{name: "data", is: wire.IsBinary, body: true, many: true},
	{name: "amqp-sequence", is: wire.IsList, body: true, many: true},
	{name: "amqp-value", is: wire.IsAny | wire.IsNull, body: true},
	{name: "footer", is: wire.IsMap},
}

const (
	idTypes = wire.IsUlong | wire.IsUUID | wire.IsBinary | wire.IsText

	codeHeader = 0x70 // the first section
)

// violation says how the peer broke the protocol. It ends the connection.
type violation struct {
	frame string // the performative, or "frame", "message", "link" or "session"
	field string // may be empty
	why   string // fit for an error: holds no bytes of the peer, or scrubbed ones
	early bool   // the peer had not opened the connection
	here  bool   // the library ended the link or session in frame
}

func (v *violation) Error() string {
	if v.here {
		return "this side ended the " + v.frame + ": " + v.why
	}
	return "the peer broke the protocol of AMQP: " + join(v.frame, v.field) + ": " + v.why
}

// Unwrap makes a violation on a connection that worked retryable.
func (v *violation) Unwrap() error {
	if v.early {
		return nil
	}
	return transport.ErrViolation
}

// item is a checked field of a frame. start and end are its place behind the frame's header.
type item struct {
	is         wire.Types // wire.IsNull also for a field that did not come
	start, end int
	number     uint64
}

// unsupported are types that the library cannot decode in a performative. It would end the
// connection without a reason. The same holds for some arrays and composites.
const (
	unsupported      = wire.IsDecimal | wire.IsChar
	unsupportedArray = unsupported | wire.IsList | wire.IsArray | wire.IsDescribed | wire.IsNull
)

// check checks the fields of a composite, at every depth. It puts them into all unless that is nil;
// body is then the encoding that ends with the fields.
func (c *composite) check(fields *wire.Walker, count int, body []byte, all []item) *violation {
	if count > len(c.fields) {
		return &violation{frame: c.name, why: fmt.Sprintf("%d fields of at most %d", count, len(c.fields))}
	}
	for i := range c.fields {
		f := &c.fields[i]
		v := wire.Value{Type: wire.IsNull}
		at := len(body) - len(fields.Rest())
		if i < count {
			fields.Seen, fields.Arrays, fields.Composites = 0, 0, false
			var err error
			if v, err = fields.Next(); err != nil {
				return &violation{frame: c.name, field: f.name, why: reason(err)}
			}
			unknown := fields.Seen&unsupported != 0 || fields.Arrays&unsupportedArray != 0 || fields.Composites && f.of == nil
			if unknown && !c.content {
				const why = "a decimal, char, composite, or array of compound or empty values is not supported here"
				return &violation{frame: c.name, field: f.name, why: why}
			}
		}
		if all != nil {
			all[i] = item{v.Type, at, at + len(v.Raw), v.Number}
		}
		if bad := f.check(&v); bad != nil {
			bad.field = join(f.name, bad.frame, bad.field)
			bad.frame = c.name
			return bad
		}
	}
	if n := len(fields.Rest()); n > 0 {
		return &violation{frame: c.name, why: fmt.Sprintf("%d bytes behind the last field", n)}
	}
	return nil
}

func join(names ...string) string {
	return strings.Join(slices.DeleteFunc(names, func(n string) bool { return n == "" }), ", ")
}

// check checks the value of a field. The violation has a frame only when it is in a composite in
// the field.
func (f *field) check(v *wire.Value) *violation {
	switch {
	case v.Type == wire.IsNull:
		if f.must {
			return &violation{why: "missing"}
		}
		return nil
	case v.Type&f.is == 0:
		return &violation{why: "wrong type"}
	case f.keys != 0 && v.Keys&^f.keys != 0:
		return &violation{why: "a key of a wrong type"}
	case f.items != 0 && v.Type&(wire.IsMap|wire.IsArray) != 0 && v.Items&^f.items != 0:
		return &violation{why: "an item of a wrong type"}
	}
	size := v.Number
	if v.Type&(wire.IsBinary|wire.IsText) != 0 {
		size = uint64(v.Length)
		if f.words != nil && !slices.Contains(f.words, string(v.Raw[len(v.Raw)-v.Length:])) {
			return &violation{why: "not one of " + strings.Join(f.words, ", ")}
		}
	}
	if size < f.least || f.most > 0 && size > f.most {
		most := f.most
		if most == 0 {
			most = math.MaxUint32
		}
		return &violation{why: fmt.Sprintf("%d is not from %d to %d", size, f.least, most)}
	}
	if f.of == nil {
		return nil
	}
	w := wire.NewWalker(v.Raw, maxItems)
	code, fields, count, err := w.Open()
	if err != nil {
		return &violation{why: reason(err)}
	}
	for _, c := range f.of {
		if c.code == code {
			return c.check(&fields, count, nil, nil)
		}
	}
	return &violation{why: fmt.Sprintf("composite 0x%x, which cannot be here", code)}
}

// reason is an error of decoding without its condition.
func reason(err error) string {
	if e, ok := err.(*wire.Error); ok {
		return e.Description
	}
	return err.Error()
}

// maxItems is how many values a frame or a message may have, at all depths together. A value of one
// byte takes 16 bytes or more in memory.
const maxItems = 1 << 16

// checkMessage checks the sections of a message.
func checkMessage(b []byte) *violation {
	w := wire.NewWalker(b, maxItems)
	last := -1
	for len(w.Rest()) > 0 {
		v, err := w.Next()
		if err != nil {
			return &violation{frame: "message", why: reason(err)}
		}
		code, ok := sectionOf(v.Raw)
		if !ok {
			return &violation{frame: "message", why: "something that is not a section"}
		}
		s := &sections[code]
		again := code == last && s.many
		if code <= last && !again || s.body && last >= 0 && sections[last].body && !again {
			return &violation{frame: "message", field: s.name, why: "behind " + sections[last].name}
		}
		last = code
		if bad := checkSection(code, v.Raw); bad != nil {
			return bad
		}
	}
	return nil
}

// sectionOf returns the index of a section.
func sectionOf(raw []byte) (code int, ok bool) {
	w := wire.NewWalker(raw[1:], 1)
	if raw[0] != 0 {
		return 0, false
	}
	d, err := w.Next()
	if err != nil || d.Type != wire.IsUlong || d.Number < codeHeader || d.Number >= codeHeader+uint64(len(sections)) {
		return 0, false
	}
	return int(d.Number - codeHeader), true
}

// checkSection checks what is in a section, whose encoding is sound.
func checkSection(code int, raw []byte) *violation {
	s := &sections[code]
	w := wire.NewWalker(raw, maxItems)
	if s.fields != nil {
		_, fields, count, err := w.Open()
		if err != nil {
			return &violation{frame: "message", field: s.name, why: reason(err)}
		}
		return (&composite{name: "message, " + s.name, fields: s.fields, content: true}).check(&fields, count, nil, nil)
	}
	w = wire.NewWalker(raw[1:], maxItems)
	_, _ = w.Next()
	v, err := w.Next()
	switch {
	case err != nil:
		return &violation{frame: "message", field: s.name, why: reason(err)}
	case v.Type&s.is == 0:
		return &violation{frame: "message", field: s.name, why: "wrong type"}
	case s.keys != 0 && v.Keys&^s.keys != 0:
		return &violation{frame: "message", field: s.name, why: "a key of a wrong type"}
	}
	return nil
}
