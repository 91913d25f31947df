package amqp

import (
	"encoding/binary"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpenc"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// Messages for a hub are encoded here: the library's maps have no order, and cost an allocation for
// each property. Encoded messages go to the hub in the body of a batch, one or many in one
// transfer.

// batchFormat is the message format of a batch: the body is data sections, each of which holds a
// whole encoded message.
const batchFormat = 0x80013700

// appendMessage appends the AMQP encoding of m. It allocates only when dst must grow.
func appendMessage(dst []byte, m *transport.Message) []byte {
	if n := count(m, annotations); n > 0 {
		dst = append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.Annotations)
		var at int
		dst, at = amqpenc.Open(dst, amqpenc.Map32)
		dst = appendNamed(dst, m, annotations, amqpenc.Symbol)
		amqpenc.Close(dst, at, 2*n)
	}
	dst = appendProperties(dst, m)
	entries := len(m.Properties) + count(m, application)
	if !m.Created.IsZero() {
		entries++
	}
	if entries == 0 {
		return appendData(dst, m.Body)
	}
	dst = append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.ApplicationProperties)
	dst, at := amqpenc.Open(dst, amqpenc.Map32)
	if !m.Created.IsZero() {
		dst = amqpenc.AppendText(dst, amqpenc.String, creationTime)
		var text [times.ISOSize + 8]byte
		dst = amqpenc.AppendBytes(dst, amqpenc.String, times.AppendISO(text[:0], m.Created))
	}
	dst = appendNamed(dst, m, application, amqpenc.String)
	for i := range m.Properties {
		p := &m.Properties[i]
		if again(m.Properties, i) {
			entries--
			continue
		}
		dst = amqpenc.AppendText(dst, amqpenc.String, p.Name)
		dst = amqpenc.AppendText(dst, amqpenc.String, p.Value)
	}
	amqpenc.Close(dst, at, 2*entries)
	return appendData(dst, m.Body)
}

// appendNamed appends the entries of a section for the properties that m has; key is the type of
// their names.
func appendNamed(dst []byte, m *transport.Message, in section, key amqpenc.Variable) []byte {
	for i := range properties {
		q := &properties[i]
		if q.sent != in {
			continue
		}
		if text := q.value(m); text != "" {
			dst = amqpenc.AppendText(dst, key, q.name)
			dst = amqpenc.AppendText(dst, amqpenc.String, text)
		}
	}
	return dst
}

// again reports whether a later property has the name of property i. A key may occur once in an
// AMQP map; the last value is sent.
func again(all []transport.Property, i int) bool {
	for j := i + 1; j < len(all); j++ {
		if all[j].Name == all[i].Name {
			return true
		}
	}
	return false
}

// appendProperties appends the section of AMQP's own properties, if m has any.
func appendProperties(dst []byte, m *transport.Message) []byte {
	system := m.System
	if system == nil {
		system = &none
	}
	fields := 0
	switch {
	case !m.Expires.IsZero():
		fields = 9
	case m.ContentEncoding != "":
		fields = 8
	case m.ContentType != "":
		fields = 7
	case m.CorrelationID != "":
		fields = 6
	case system.To != "":
		fields = 3
	case system.UserID != "":
		fields = 2
	case m.ID != "":
		fields = 1
	default:
		return dst
	}
	dst = append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.Properties)
	dst, at := amqpenc.Open(dst, amqpenc.List32)
	for i := range fields {
		switch i {
		case 0:
			dst = appendOptional(dst, amqpenc.String, m.ID)
		case 1:
			dst = appendOptional(dst, amqpenc.Binary, system.UserID)
		case 2:
			dst = appendOptional(dst, amqpenc.String, system.To)
		case 5:
			dst = appendOptional(dst, amqpenc.String, m.CorrelationID)
		case 6:
			dst = appendOptional(dst, amqpenc.Symbol, m.ContentType)
		case 7:
			dst = appendOptional(dst, amqpenc.Symbol, m.ContentEncoding)
		case 8:
			dst = binary.BigEndian.AppendUint64(append(dst, amqpenc.Timestamp), uint64(milliseconds(m.Expires)))
		default:
			dst = append(dst, amqpenc.Null)
		}
	}
	amqpenc.Close(dst, at, fields)
	return dst
}

// milliseconds converts t to an AMQP timestamp.
func milliseconds(t time.Time) int64 { return t.UnixMilli() }

// appendData appends a data section.
func appendData(dst, body []byte) []byte {
	return amqpenc.AppendBytes(append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.Data), amqpenc.Binary, body)
}

func appendOptional(dst []byte, t amqpenc.Variable, s string) []byte {
	if s == "" {
		return append(dst, amqpenc.Null)
	}
	return amqpenc.AppendText(dst, t, s)
}
