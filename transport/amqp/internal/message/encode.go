package message

import (
	"errors"
	"strings"
	"unicode"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// Refusal returns why m is not sent at all to a hub, or to another broker; nil if it is. limit is
// the size of the largest message, 0 for any.
func Refusal(m *transport.Message, hub bool, limit int) *transport.Error {
	e := operr.NoPlace(m, "AMQP", !hub)
	if e == nil && !hub {
		e = operr.NoPlaceOutsideHubs(m, "AMQP", "System.To", "System.UserID")
	}
	if e == nil && limit > 0 && m.Size() > limit {
		e = operr.TooLarge(m.Size(), len(m.Body), limit)
	}
	if e == nil {
		e = notASCII("ContentType", m.ContentType)
	}
	if e == nil {
		e = notASCII("ContentEncoding", m.ContentEncoding)
	}
	if e != nil {
		e.Proto = "amqp"
	}
	return e
}

// notASCII returns the error for a field that cannot be an AMQP symbol, nil for another one.
func notASCII(field, value string) *transport.Error {
	if !strings.ContainsFunc(value, func(r rune) bool { return r > unicode.MaxASCII }) {
		return nil
	}
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: errors.New("message " + field +
		" is not ASCII, as AMQP demands")}
}

// AppendHead appends the AMQP encoding of m for a hub, or for another broker, without its body.
// It allocates only when dst must grow. For a broker the message is durable, so it survives a
// restart as in a hub.
func AppendHead(dst []byte, m *transport.Message, hub bool) []byte {
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
		p := &m.Properties[i] // Message.Validate has refused names that repeat
		f.String(p.Name)
		f.String(p.Value)
	}
	if dst = f.End(); !some {
		return dst[:before]
	}
	return dst
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
