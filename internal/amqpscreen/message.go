package amqpscreen

import (
	"cmp"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpenc"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/scrub"
)

// sections are the sections of a message, in their order [3.2]. Those from data to amqp-value are
// its body.
var sections = []struct {
	name   string
	types  wire.Types
	keys   wire.Types
	fields []field // of a list
	body   bool
	many   bool // it may occur repeatedly
}{
	{name: "header", types: wire.IsList, fields: []field{
		boolean("durable"), {name: "priority", types: wire.IsUbyte}, uint32Of("ttl"), boolean("first-acquirer"),
		uint32Of("delivery-count"),
	}},
	{name: "delivery-annotations", types: wire.IsMap},
	{name: "message-annotations", types: wire.IsMap},
	{name: "properties", types: wire.IsList, fields: []field{
		{name: "message-id", types: idTypes}, {name: "user-id", types: wire.IsBinary}, address("to"), text("subject"),
		address("reply-to"), {name: "correlation-id", types: idTypes}, text("content-type"),
		text("content-encoding"),
		{name: "absolute-expiry-time", types: wire.IsTimestamp}, {name: "creation-time", types: wire.IsTimestamp},
		text("group-id"),
		uint32Of("group-sequence"), text("reply-to-group-id"),
	}},
	{name: "application-properties", types: wire.IsMap, keys: wire.IsText},
	{name: "data", types: wire.IsBinary, body: true, many: true},
	{name: "amqp-sequence", types: wire.IsList, body: true, many: true},
	{name: "amqp-value", types: wire.IsAny | wire.IsNull, body: true},
	{name: "footer", types: wire.IsMap},
}

const (
	idTypes = wire.IsUlong | wire.IsUUID | wire.IsBinary | wire.IsText

	codeHeader = 0x70 // the first section
)

// checkMessage checks the sections of a message.
func checkMessage(b []byte) *Violation {
	w := wire.NewWalker(b, maxItems)
	last := -1
	for len(w.Rest()) > 0 {
		v, err := w.Next()
		if err != nil {
			return undecodable("message", err)
		}
		code, ok := sectionOf(v.Raw)
		if !ok {
			return broken("message", "has something that is not a section")
		}
		s := &sections[code]
		again := code == last && s.many
		if code <= last && !again || s.body && last >= 0 && sections[last].body && !again {
			return broken("message."+s.name, "comes behind %s", sections[last].name)
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

// checkSection checks the content of a section whose encoding is valid.
func checkSection(code int, raw []byte) *Violation {
	s := &sections[code]
	path := "message." + s.name
	w := wire.NewWalker(raw, maxItems)
	if s.fields != nil {
		_, fields, count, err := w.Open()
		if err != nil {
			return undecodable(path, err)
		}
		return (&composite{name: path, fields: s.fields}).check(&fields, count, nil, nil)
	}
	w = wire.NewWalker(raw[1:], maxItems)
	_, _ = w.Next()
	w.Composites = false // the descriptor is no value of the section
	v, err := w.Next()
	switch {
	case err != nil:
		return undecodable(path, err)
	case unreadable(&w):
		return unsupported(path, unreadableText)
	case v.Type&s.types == 0:
		return broken(path, "has a wrong type")
	case s.keys != 0 && v.Keys&^s.keys != 0:
		return broken(path, "has a key of a wrong type")
	}
	return nil
}

// Annotations of a stand-in, the message that replaces one that the library must not get. A message
// in which the peer itself sends the first is treated as a stand-in.
const (
	standInKey   = "x-opt-hubline-broken"
	conditionKey = "x-opt-hubline-condition"
)

// appendStandIn appends a stand-in that says why the message was replaced.
func appendStandIn(dst []byte, why *Violation) []byte {
	dst = append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.Annotations)
	dst, at := amqpenc.Open(dst, amqpenc.Map32)
	dst = amqpenc.AppendText(dst, amqpenc.Symbol, standInKey)
	dst = amqpenc.AppendText(dst, amqpenc.String, why.Error())
	dst = amqpenc.AppendText(dst, amqpenc.Symbol, conditionKey)
	dst = amqpenc.AppendText(dst, amqpenc.Symbol, string(cmp.Or(why.Condition, amqp.ErrCondDecodeError)))
	amqpenc.Close(dst, at, 4)
	return dst
}

// ReplacedMessage returns why the screen replaced a message, nil if it did not.
func ReplacedMessage(m *amqp.Message) *Violation {
	text, ok := m.Annotations[standInKey].(string)
	if !ok {
		return nil
	}
	condition := amqp.ErrCondDecodeError
	switch c, _ := m.Annotations[conditionKey].(string); amqp.ErrCond(c) {
	case amqp.ErrCondMessageSizeExceeded, amqp.ErrCondResourceLimitExceeded:
		condition = amqp.ErrCond(c)
	}
	return &Violation{fault: faultMessage, path: "message", problem: scrub.Peer(text), Condition: condition}
}
