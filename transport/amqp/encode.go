package amqp

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// batchBytes is the most bytes of a batch, unless its first message is larger. A larger batch saves
// nothing, and its outcome arrives later.
const batchBytes = 24 << 10

// aloneBytes is the body from which on a message is sent without others, and not copied before the
// connection's buffer.
const aloneBytes = 16 << 10

// encoder makes a transfer of messages. Its buffer is reused for the next one.
type encoder struct {
	format uint32
	size   int    // bytes of the message that is sent
	buf    []byte // that message, or all of it but the body of a single one
	body   []byte // the rest
	both   [2][]byte
}

// parts returns the message for Sender.Send.
func (e *encoder) parts() [][]byte {
	e.both = [2][]byte{e.buf, e.body}
	return e.both[:]
}

// done forgets the message.
func (e *encoder) done() {
	e.body, e.both = nil, [2][]byte{}
	if cap(e.buf) > 2*batchBytes {
		e.buf = nil
	}
}

// encode makes a message of the first items, as many as fit into limit, and returns their number. A
// hub gets a batch: data sections that each hold a whole encoded message.
func (e *encoder) encode(items []transport.Item, limit int, o *Options) int {
	first := items[0].Msg
	hub := o.Addresses == nil
	e.buf, e.body, e.format = e.buf[:0], nil, 0
	if o.Batch == 1 {
		e.buf, e.body = appendHead(e.buf, first, hub), first.Body
		e.size = len(e.buf) + len(e.body)
		return 1
	}
	e.format = wire.BatchFormat
	n := 0
	if len(items) == 1 || len(first.Body) >= aloneBytes {
		e.buf, e.body = e.appendSection(first, false), first.Body
		n = 1
	}
	for ; n < len(items) && e.body == nil; n++ {
		begin := len(e.buf)
		if n > 0 && begin+items[n].Msg.Size() > limit {
			break
		}
		if e.buf = e.appendSection(items[n].Msg, true); n > 0 && len(e.buf) > limit {
			e.buf = e.buf[:begin]
			break
		}
	}
	e.size = len(e.buf) + len(e.body)
	return n
}

// appendSection appends a message as a data section of a batch, with its body or without.
func (e *encoder) appendSection(m *transport.Message, whole bool) []byte {
	const most = 8 // bytes before a section's content
	begin := len(e.buf)
	b := appendHead(append(e.buf, make([]byte, most)...), m, true)
	if whole {
		b = append(b, m.Body...)
	}
	n := len(b) - begin - most
	if !whole {
		n += len(m.Body)
	}
	if head := wire.AppendDataHead(b[:begin], n); len(head) < begin+most {
		return append(head, b[begin+most:]...)
	}
	return b
}

// appendMessage appends the AMQP encoding of m for a hub.
func appendMessage(dst []byte, m *transport.Message) []byte {
	return append(appendHead(dst, m, true), m.Body...)
}

// appendHead appends the AMQP encoding of m for a hub, or for another broker, without its body.
// It allocates only when dst must grow. For a broker the message is durable, so it survives a
// restart as in a hub.
func appendHead(dst []byte, m *transport.Message, hub bool) []byte {
	if !hub {
		f := wire.BeginHeader(dst)
		f.Bool(true)
		dst = f.End()
	}
	if hub && count(m, annotations) > 0 {
		f := wire.BeginMessageAnnotations(dst)
		for i := range properties {
			if q := &properties[i]; q.sent == annotations && q.value(m) != "" {
				f.Symbol(wire.Symbol(q.name))
				f.String(q.value(m))
			}
		}
		dst = f.End()
	}
	dst = appendProperties(dst, m, hub)
	dst = appendApplication(dst, m, hub)
	return wire.AppendDataHead(dst, len(m.Body))
}

// appendApplication appends the application properties, if m has any. Those with a place of their
// own come first. A key may occur once in an AMQP map; the last value is sent.
func appendApplication(dst []byte, m *transport.Message, hub bool) []byte {
	before := len(dst)
	f := wire.BeginApplicationProperties(dst)
	some := len(m.Properties) > 0
	if hub && !m.Created.IsZero() {
		some = true
		f.String(creationTime)
		var text [times.ISOSize + 8]byte
		f.String(string(times.AppendISO(text[:0], m.Created)))
	}
	for i := range properties {
		q := &properties[i]
		if hub && q.sent != application || !hub && q.name != subject {
			continue
		}
		if text := q.value(m); text != "" {
			some = true
			f.String(q.name)
			f.String(text)
		}
	}
	for i := range m.Properties {
		if p := &m.Properties[i]; !again(m.Properties, i) {
			f.String(p.Name)
			f.String(p.Value)
		}
	}
	if dst = f.End(); !some {
		return dst[:before]
	}
	return dst
}

// again reports whether a later property has the name of property i.
func again(all []transport.Property, i int) bool {
	for j := i + 1; j < len(all); j++ {
		if all[j].Name == all[i].Name {
			return true
		}
	}
	return false
}

// appendProperties appends the section of AMQP's own properties, if m has any. A hub gets the
// creation time elsewhere, and no reply address.
func appendProperties(dst []byte, m *transport.Message, hub bool) []byte {
	system := m.System
	if system == nil {
		system = &none
	}
	before := len(dst)
	f := wire.BeginProperties(dst)
	text := func(s string) bool {
		if s == "" {
			f.Absent()
		} else {
			f.String(s)
		}
		return s != ""
	}
	symbol := func(s string) bool {
		if s == "" {
			f.Absent()
		} else {
			f.Symbol(wire.Symbol(s))
		}
		return s != ""
	}
	some := text(m.ID)
	if system.UserID == "" {
		f.Absent()
	} else {
		f.Binary([]byte(system.UserID))
		some = true
	}
	some = text(system.To) || some
	f.Absent() // subject
	if hub {
		f.Absent()
	} else {
		some = text(m.ResponseTopic) || some
	}
	some = text(m.CorrelationID) || some
	some = symbol(m.ContentType) || some
	some = symbol(m.ContentEncoding) || some
	if m.Expires.IsZero() {
		f.Absent()
	} else {
		f.Timestamp(wire.Timestamp(m.Expires.UnixMilli()))
		some = true
	}
	if !hub && !m.Created.IsZero() {
		f.Timestamp(wire.Timestamp(m.Created.UnixMilli()))
		some = true
	}
	if dst = f.End(); !some {
		return dst[:before]
	}
	return dst
}
