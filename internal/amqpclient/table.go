package amqpclient

import (
	"slices"
	"strings"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// Descriptors of performatives [AMQP 1.0, 2.7, 5.3].
const (
	codeOpen        = 0x10
	codeBegin       = 0x11
	codeAttach      = 0x12
	codeFlow        = 0x13
	codeTransfer    = 0x14
	codeDisposition = 0x15
	codeDetach      = 0x16
	codeEnd         = 0x17
	codeClose       = 0x18
	codeMechanisms  = 0x40
	codeChallenge   = 0x42
	codeOutcome     = 0x44
)

// composite is a composite type that a peer may send, with its fields in order. Trailing fields may
// be omitted.
type composite struct {
	name   string
	code   uint64
	fields []field
}

// field says which values a field may have. Null is allowed unless required is set.
type field struct {
	name     string
	types    wire.Types
	required bool
	// least and most bound an unsigned number, or the length of a binary or text. most 0: no upper
	// bound.
	least, most uint64
	// keys and items bound the types in a map or an array. 0: any type.
	keys, items wire.Types
	// values are the allowed texts. nil: any text.
	values []string
	// composites are the allowed types of a described value. nil: any value.
	composites []*composite
}

// maxFields is the most fields of a performative.
const maxFields = 14

// Constructors of common fields.
func uint32Of(name string) field   { return field{name: name, types: wire.IsUint} }
func required32(name string) field { return field{name: name, types: wire.IsUint, required: true} }
func boolean(name string) field    { return field{name: name, types: wire.IsBoolean} }
func text(name string) field       { return field{name: name, types: wire.IsText} }
func symbols(name string) field {
	return field{name: name, types: wire.IsText | wire.IsArray, items: wire.IsText}
}
func fieldMap(name string) field {
	return field{name: name, types: wire.IsMap, keys: wire.IsText}
}
func one(name string, of ...*composite) field {
	return field{name: name, types: wire.IsDescribed, composites: of}
}

// The composite types inside performatives [2.8.14, 3.4, 3.5].
var (
	errorType = &composite{name: "error", code: 0x1d, fields: []field{
		{name: "condition", types: wire.IsText, required: true}, text("description"), fieldMap("info"),
	}}

	stateTypes = []*composite{
		{name: "received", code: 0x23, fields: []field{
			required32("section-number"), {name: "section-offset", types: wire.IsUlong, required: true},
		}},
		{name: "accepted", code: 0x24, fields: nil},
		{name: "rejected", code: 0x25, fields: []field{one("error", errorType)}},
		{name: "released", code: 0x26, fields: nil},
		{name: "modified", code: 0x27, fields: []field{
			boolean("delivery-failed"), boolean("undeliverable-here"), {name: "message-annotations", types: wire.IsMap},
		}},
	}

	expiryPolicies = []string{"link-detach", "session-end", "connection-close", "never"}

	sourceType = &composite{name: "source", code: 0x28, fields: []field{
		text("address"), {name: "durable", types: wire.IsUint, most: 2},
		{name: "expiry-policy", types: wire.IsText, values: expiryPolicies}, uint32Of("timeout"), boolean("dynamic"),
		fieldMap("dynamic-node-properties"), text("distribution-mode"),
		{name: "filter", types: wire.IsMap, keys: wire.IsText, items: wire.IsDescribed | wire.IsNull},
		one("default-outcome", stateTypes...), symbols("outcomes"), symbols("capabilities"),
	}}
	targetType = &composite{name: "target", code: 0x29, fields: []field{
		text("address"), {name: "durable", types: wire.IsUint, most: 2},
		{name: "expiry-policy", types: wire.IsText, values: expiryPolicies}, uint32Of("timeout"), boolean("dynamic"),
		fieldMap("dynamic-node-properties"), symbols("capabilities"),
	}}
)

// performatives are the performatives that a peer may send.
var performatives = []*composite{
	{name: "open", code: codeOpen, fields: []field{
		{name: "container-id", types: wire.IsText, required: true}, text("hostname"),
		{name: "max-frame-size", types: wire.IsUint, least: wire.MinMaxFrameSize},
		{name: "channel-max", types: wire.IsUshort},
		uint32Of("idle-time-out"),
		symbols("outgoing-locales"), symbols("incoming-locales"),
		symbols("offered-capabilities"), symbols("desired-capabilities"),
		fieldMap("properties"),
	}},
	{name: "begin", code: codeBegin, fields: []field{
		{name: "remote-channel", types: wire.IsUshort},
		required32("next-outgoing-id"), required32("incoming-window"), required32("outgoing-window"), uint32Of("handle-max"),
		symbols("offered-capabilities"), symbols("desired-capabilities"), fieldMap("properties"),
	}},
	{name: "attach", code: codeAttach, fields: []field{
		{name: "name", types: wire.IsText, required: true}, required32("handle"),
		{name: "role", types: wire.IsBoolean, required: true},
		{name: "snd-settle-mode", types: wire.IsUbyte, most: 2}, {name: "rcv-settle-mode", types: wire.IsUbyte, most: 1},
		one("source", sourceType), one("target", targetType),
		{name: "unsettled", types: wire.IsMap, keys: wire.IsText, items: wire.IsDescribed | wire.IsNull},
		boolean("incomplete-unsettled"), uint32Of("initial-delivery-count"),
		{name: "max-message-size", types: wire.IsUlong},
		symbols("offered-capabilities"), symbols("desired-capabilities"), fieldMap("properties"),
	}},
	{name: "flow", code: codeFlow, fields: []field{
		uint32Of("next-incoming-id"), required32("incoming-window"),
		required32("next-outgoing-id"), required32("outgoing-window"),
		uint32Of("handle"),
		uint32Of("delivery-count"), uint32Of("link-credit"), uint32Of("available"),
		boolean("drain"), boolean("echo"), fieldMap("properties"),
	}},
	{name: "transfer", code: codeTransfer, fields: []field{
		required32("handle"), uint32Of("delivery-id"), {name: "delivery-tag", types: wire.IsBinary, most: 32},
		uint32Of("message-format"),
		boolean("settled"), boolean("more"), {name: "rcv-settle-mode", types: wire.IsUbyte, most: 1},
		one("state", stateTypes...),
		boolean("resume"), boolean("aborted"), boolean("batchable"),
	}},
	{name: "disposition", code: codeDisposition, fields: []field{
		{name: "role", types: wire.IsBoolean, required: true}, required32("first"), uint32Of("last"), boolean("settled"),
		one("state", stateTypes...), boolean("batchable"),
	}},
	{name: "detach", code: codeDetach, fields: []field{required32("handle"), boolean("closed"), one("error", errorType)}},
	{name: "end", code: codeEnd, fields: []field{one("error", errorType)}},
	{name: "close", code: codeClose, fields: []field{one("error", errorType)}},
	{name: "sasl-mechanisms", code: codeMechanisms, fields: []field{
		{name: "sasl-server-mechanisms", types: wire.IsText | wire.IsArray, items: wire.IsText, required: true},
	}},
	{name: "sasl-challenge", code: codeChallenge, fields: []field{
		{name: "challenge", types: wire.IsBinary, required: true},
	}},
	{name: "sasl-outcome", code: codeOutcome, fields: []field{
		{name: "code", types: wire.IsUbyte, required: true}, {name: "additional-data", types: wire.IsBinary},
	}},
}

// item is a checked field of a frame. start and end are its position behind the frame's header.
type item struct {
	types      wire.Types // type of its value; wire.IsNull also for a missing field
	start, end int
	number     uint64
}

// check checks the fields of a composite, at every depth. It stores them in all unless that is nil;
// body is then the encoding that ends with the fields.
func (c *composite) check(fields *wire.Walker, count int, body []byte, all []item) *Violation {
	if count > len(c.fields) {
		return broken(c.name, "has %d fields, it can have %d", count, len(c.fields))
	}
	for i := range c.fields {
		f := &c.fields[i]
		v := wire.Value{Type: wire.IsNull}
		at := len(body) - len(fields.Rest())
		if i < count {
			var err error
			if v, err = fields.Next(); err != nil {
				return undecodable(c.name+"."+f.name, err)
			}
		}
		if all != nil {
			all[i] = item{v.Type, at, at + len(v.Raw), v.Number}
		}
		if bad := f.check(&v); bad != nil {
			return bad.within(c.name)
		}
	}
	if n := len(fields.Rest()); n > 0 {
		return broken(c.name, "has %d bytes behind its last field", n)
	}
	return nil
}

// check checks the value of a field.
func (f *field) check(v *wire.Value) *Violation {
	switch {
	case v.Type == wire.IsNull:
		if f.required {
			return broken(f.name, "is missing")
		}
		return nil
	case v.Type&f.types == 0:
		return broken(f.name, "has a wrong type")
	case f.keys != 0 && v.Keys&^f.keys != 0:
		return broken(f.name, "has a key of a wrong type")
	case f.items != 0 && v.Type&(wire.IsMap|wire.IsArray) != 0 && v.Items&^f.items != 0:
		return broken(f.name, "has an item of a wrong type")
	}
	size, measure := v.Number, "is"
	if v.Type&(wire.IsBinary|wire.IsText) != 0 {
		size, measure = uint64(v.Length), "has the length"
		if f.values != nil && !slices.Contains(f.values, string(v.Raw[len(v.Raw)-v.Length:])) {
			return broken(f.name, "is not one of %s", strings.Join(f.values, ", "))
		}
	}
	switch {
	case size < f.least:
		return broken(f.name, "%s %d, less than %d", measure, size, f.least)
	case f.most > 0 && size > f.most:
		return broken(f.name, "%s %d, more than %d", measure, size, f.most)
	case f.composites == nil:
		return nil
	}
	w := wire.NewWalker(v.Raw, maxItems)
	code, fields, count, err := w.Open()
	if err != nil {
		return undecodable(f.name, err)
	}
	for _, c := range f.composites {
		if c.code != code {
			continue
		}
		bad := c.check(&fields, count, nil, nil)
		if bad != nil && c.name != f.name {
			return bad.within(f.name)
		}
		return bad
	}
	return broken(f.name, "is composite 0x%x, which cannot be there", code)
}

// maxItems is how many values a frame or a message may have, at all depths together. A value of one
// byte takes 16 bytes or more in memory.
const maxItems = 1 << 16
