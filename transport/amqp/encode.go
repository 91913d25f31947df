package amqp

import (
	"encoding/binary"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpenc"
	"github.com/hubline-iot/hubline/internal/isotime"
	"github.com/hubline-iot/hubline/transport"
)

// Messages for a hub are encoded here: the library's maps have no order, and cost an allocation for
// each property. Encoded messages go to the hub in the body of a batch, one or many in one
// transfer.

// batchFormat is the message format of a batch: the body is data sections, each of which holds a
// whole encoded message.
const batchFormat = 0x80013700

// creationTime is the application property that carries Message.Created.
const creationTime = "iothub-creation-time-utc"

// subject is the message annotation that carries Message.Component.
const subject = "dt-subject"

// appendMessage appends the AMQP encoding of m. It allocates only when dst must grow.
func appendMessage(dst []byte, m *transport.Message) []byte {
	if m.Component != "" {
		dst = append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.Annotations)
		var at int
		dst, at = amqpenc.Open(dst, amqpenc.Map32)
		dst = amqpenc.AppendText(dst, amqpenc.Symbol, subject)
		dst = amqpenc.AppendText(dst, amqpenc.String, m.Component)
		amqpenc.Close(dst, at, 2)
	}
	dst = appendProperties(dst, m)
	if len(m.Properties) > 0 || !m.Created.IsZero() {
		dst = append(dst, amqpenc.Described, amqpenc.SmallCode, amqpenc.ApplicationProperties)
		count := 2 * len(m.Properties)
		dst, at := amqpenc.Open(dst, amqpenc.Map32)
		if !m.Created.IsZero() {
			count += 2
			dst = amqpenc.AppendText(dst, amqpenc.String, creationTime)
			var text [isotime.Size + 8]byte
			dst = amqpenc.AppendBytes(dst, amqpenc.String, isotime.Append(text[:0], m.Created))
		}
		for i := range m.Properties {
			p := &m.Properties[i]
			if again(m.Properties, i) {
				count -= 2
				continue
			}
			dst = amqpenc.AppendText(dst, amqpenc.String, p.Name)
			dst = amqpenc.AppendText(dst, amqpenc.String, p.Value)
		}
		amqpenc.Close(dst, at, count)
		return appendData(dst, m.Body)
	}
	return appendData(dst, m.Body)
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

// appendProperties appends the section of system properties, if m has any.
func appendProperties(dst []byte, m *transport.Message) []byte {
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
