package outbox

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// A record is
//
//	length  4 bytes, of the message
//	sum     4 bytes, CRC-32C of the record's number (8 bytes) and the message
//	message
//
// all numbers big endian. A message is its version (1), then ID, CorrelationID, ContentType, ContentEncoding, Component, Created, Expires, the properties' number and each one's name and value, and the body. Texts and the
// body have their length before them, as a uvarint; times are seconds since 1970 as a varint and the nanoseconds of the second as a uvarint, behind a byte that is 0 if there is none.
const (
	recordHead = 8
	version    = 1
	// maxRecord bounds what is read for one message: a hub takes 256 KB of what counts, and lengths and times come on top.
	maxRecord = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a message with its number.
func sum(number uint64, message []byte) uint32 {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], number)
	return crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, message)
}

// appendMessage appends m.
func appendMessage(b []byte, m *transport.Message) []byte {
	b = append(b, version)
	for _, s := range [...]string{m.ID, m.CorrelationID, m.ContentType, m.ContentEncoding, m.Component} {
		b = appendText(b, s)
	}
	b = appendTime(b, m.Created)
	b = appendTime(b, m.Expires)
	b = binary.AppendUvarint(b, uint64(len(m.Properties)))
	for i := range m.Properties {
		b = appendText(b, m.Properties[i].Name)
		b = appendText(b, m.Properties[i].Value)
	}
	b = binary.AppendUvarint(b, uint64(len(m.Body)))
	return append(b, m.Body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return binary.AppendUvarint(binary.AppendVarint(append(b, 1), t.Unix()), uint64(t.Nanosecond()))
}

var errMessage = errors.New("outbox: these bytes are no message")

// readMessage reads a message into m. Nothing in m points into b afterwards.
func readMessage(b []byte, m *transport.Message) error {
	r := reader{b: b}
	if r.byte() != version {
		return errMessage
	}
	*m = transport.Message{Properties: m.Properties[:0]}
	for _, s := range [...]*string{&m.ID, &m.CorrelationID, &m.ContentType, &m.ContentEncoding, &m.Component} {
		*s = string(r.bytes())
	}
	m.Created = r.time()
	m.Expires = r.time()
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		m.Properties = append(m.Properties, transport.Property{Name: string(r.bytes()), Value: string(r.bytes())})
	}
	m.Body = append([]byte(nil), r.bytes()...)
	if r.bad || len(r.b) > 0 {
		return errMessage
	}
	return nil
}

// reader takes parts off b. Once bad, all that it returns is empty.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return nil
	}
	part := r.b[:n]
	r.b = r.b[n:]
	return part
}

func (r *reader) time() time.Time {
	if r.byte() == 0 {
		return time.Time{}
	}
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return time.Time{}
	}
	r.b = r.b[n:]
	return time.Unix(v, int64(r.uvarint()))
}
