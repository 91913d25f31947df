package amqp

import (
	"encoding/binary"
	"time"

	"github.com/hubline-iot/hubline/internal/isotime"
	"github.com/hubline-iot/hubline/transport"
)

// Messages for a hub are encoded here: the library's maps have no order, and cost an allocation for
// each property. Encoded messages go to the hub in the body of a batch, one or many in one
// transfer.

// batchFormat is the message format of a batch: the body is data sections, each of which holds a
// whole encoded message.
const batchFormat = 0x80013700

// Codes of AMQP's types.
const (
	described = 0x00
	null      = 0x40
	boolTrue  = 0x41
	smallCode = 0x53 // a descriptor in one byte
	timestamp = 0x83
	list8     = 0xc0
	list32    = 0xd0
	map32     = 0xd1

	sectionAnnotations = 0x72
	sectionProperties  = 0x73
	sectionApplication = 0x74
	sectionData        = 0x75
)

// variable holds the two codes of a type with a length, of one byte and of four.
type variable struct{ short, long byte }

var (
	binaryType = variable{0xa0, 0xb0}
	stringType = variable{0xa1, 0xb1}
	symbolType = variable{0xa3, 0xb3}
)

// creationTime is the application property that carries Message.Created.
const creationTime = "iothub-creation-time-utc"

// subject is the message annotation that carries Message.Component.
const subject = "dt-subject"

// appendMessage appends the AMQP encoding of m. It allocates only when dst must grow.
func appendMessage(dst []byte, m *transport.Message) []byte {
	if m.Component != "" {
		dst = append(dst, described, smallCode, sectionAnnotations)
		var at int
		dst, at = openCompound(dst, map32)
		dst = appendText(dst, symbolType, subject)
		dst = appendText(dst, stringType, m.Component)
		closeCompound(dst, at, 2)
	}
	dst = appendProperties(dst, m)
	if len(m.Properties) > 0 || !m.Created.IsZero() {
		dst = append(dst, described, smallCode, sectionApplication)
		count := 2 * len(m.Properties)
		dst, at := openCompound(dst, map32)
		if !m.Created.IsZero() {
			count += 2
			dst = appendText(dst, stringType, creationTime)
			var text [isotime.Size + 8]byte
			dst = appendBytes(dst, stringType, isotime.Append(text[:0], m.Created))
		}
		for i := range m.Properties {
			p := &m.Properties[i]
			if again(m.Properties, i) {
				count -= 2
				continue
			}
			dst = appendText(dst, stringType, p.Name)
			dst = appendText(dst, stringType, p.Value)
		}
		closeCompound(dst, at, count)
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
	dst = append(dst, described, smallCode, sectionProperties)
	dst, at := openCompound(dst, list32)
	for i := range fields {
		switch i {
		case 0:
			dst = appendOptional(dst, stringType, m.ID)
		case 5:
			dst = appendOptional(dst, stringType, m.CorrelationID)
		case 6:
			dst = appendOptional(dst, symbolType, m.ContentType)
		case 7:
			dst = appendOptional(dst, symbolType, m.ContentEncoding)
		case 8:
			dst = binary.BigEndian.AppendUint64(append(dst, timestamp), uint64(milliseconds(m.Expires)))
		default:
			dst = append(dst, null)
		}
	}
	closeCompound(dst, at, fields)
	return dst
}

// milliseconds converts t to an AMQP timestamp.
func milliseconds(t time.Time) int64 { return t.UnixMilli() }

// appendData appends a data section.
func appendData(dst, body []byte) []byte {
	return appendBytes(append(dst, described, smallCode, sectionData), binaryType, body)
}

func appendOptional(dst []byte, t variable, s string) []byte {
	if s == "" {
		return append(dst, null)
	}
	return appendText(dst, t, s)
}

func appendText(dst []byte, t variable, s string) []byte {
	return append(appendLength(dst, t, len(s)), s...)
}

func appendBytes(dst []byte, t variable, p []byte) []byte {
	return append(appendLength(dst, t, len(p)), p...)
}

func appendLength(dst []byte, t variable, n int) []byte {
	if n < 256 {
		return append(dst, t.short, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, t.long), uint32(n))
}

// openCompound begins a list or map whose size and count closeCompound fills in.
func openCompound(dst []byte, code byte) ([]byte, int) {
	return append(dst, code, 0, 0, 0, 0, 0, 0, 0, 0), len(dst) + 1
}

func closeCompound(dst []byte, at, count int) {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	binary.BigEndian.PutUint32(dst[at+4:], uint32(count))
}
