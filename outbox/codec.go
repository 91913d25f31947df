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
//	marker   4 bytes
//	length   4 bytes, of the message
//	number   8 bytes
//	sum      4 bytes, CRC-32C of the message
//	headSum  4 bytes, CRC-32C of the segment's salt, the record's offset in the file and the above
//	message
//
// All numbers are big endian. The marker lets a reader find the next record after a damaged one.
// Salt and offset keep it from taking bytes of a message for a record.
//
// A message is its version (2), a byte with flags, then ID, CorrelationID, ContentType,
// ContentEncoding, Component, Topic, ResponseTopic, with flagSystem the Output and the fields of
// System in their order, then Created, Expires, the number of properties, the name and value of
// each, and the body. Strings and the body are preceded by their length as a uvarint. A time is the
// byte 0 if there is none, otherwise the byte 1, the seconds since 1970 as a varint and the
// nanoseconds of the second as a uvarint. Input and Redelivered are not of messages to send.
//
// A further field needs a flag or a version of its own. Open refuses a folder with an intact
// message of an unknown version or with an unknown flag, unless the message is done. Otherwise an
// older program would take it for damaged, and skip it.
const (
	marker     = "\xf7HL\xfe" // these bytes never occur in UTF-8 text
	recordHead = 24
	version    = 2
	// leastMessage is the size of an empty message.
	leastMessage = 13
	// maxMessage is the maximum size of a stored message in bytes: a hub takes 256 KB, without lengths
	// and times.
	maxMessage = 1 << 20
)

const (
	flagRetain = 1 << iota
	flagAtMostOnce
	flagSystem
	allFlags = 1<<iota - 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendRecord appends a record with m. sealRecord adds its offset and number once they are known.
func appendRecord(b []byte, m *transport.Message) []byte {
	at := len(b)
	b = append(b, marker...)
	b = append(b, make([]byte, recordHead-len(marker))...)
	b = appendMessage(b, m)
	record := b[at:]
	binary.BigEndian.PutUint32(record[4:], uint32(len(record)-recordHead))
	binary.BigEndian.PutUint32(record[16:], crc32.Checksum(record[recordHead:], castagnoli))
	return b
}

// sealRecord writes the number and the head's checksum for an offset in a segment.
func sealRecord(record []byte, salt uint32, offset int64, number uint64) {
	binary.BigEndian.PutUint64(record[8:], number)
	binary.BigEndian.PutUint32(record[20:], headSum(record, salt, offset))
}

// headSum adds the first bytes one by one: a buffer for them would be allocated for each record.
func headSum(head []byte, salt uint32, offset int64) uint32 {
	sum := ^uint32(0)
	for shift := 24; shift >= 0; shift -= 8 {
		sum = castagnoli[byte(sum)^byte(salt>>shift)] ^ sum>>8
	}
	for shift := 56; shift >= 0; shift -= 8 {
		sum = castagnoli[byte(sum)^byte(offset>>shift)] ^ sum>>8
	}
	return crc32.Update(^sum, castagnoli, head[:20])
}

// head is the verified head of a record.
type head struct {
	number uint64
	length int
	sum    uint32
}

// readHead reads a record's head. ok is false when there is no record at this offset.
func readHead(b []byte, salt uint32, offset int64) (h head, ok bool) {
	if string(b[:len(marker)]) != marker || binary.BigEndian.Uint32(b[20:]) != headSum(b, salt, offset) {
		return head{}, false
	}
	length := binary.BigEndian.Uint32(b[4:])
	if length < leastMessage || length > maxMessage {
		return head{}, false
	}
	return head{binary.BigEndian.Uint64(b[8:]), int(length), binary.BigEndian.Uint32(b[16:])}, true
}

// appendMessage appends the encoded m.
func appendMessage(b []byte, m *transport.Message) []byte {
	var flags byte
	if m.Retain {
		flags |= flagRetain
	}
	if m.AtMostOnce {
		flags |= flagAtMostOnce
	}
	var system transport.SystemProperties
	if m.System != nil {
		system = *m.System
	}
	if m.Output != "" || system != (transport.SystemProperties{}) {
		flags |= flagSystem
	}
	b = append(b, version, flags)
	for _, s := range [...]string{m.ID, m.CorrelationID, m.ContentType, m.ContentEncoding, m.Component, m.Topic,
		m.ResponseTopic} {
		b = appendText(b, s)
	}
	if flags&flagSystem != 0 {
		for _, s := range systemTexts(m, &system) {
			b = appendText(b, *s)
		}
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

// systemTexts are the texts of the section for Output and System, in their order in a file.
func systemTexts(m *transport.Message, p *transport.SystemProperties) [9]*string {
	return [...]*string{&m.Output, &p.To, &p.UserID, &p.Schema, &p.InterfaceID, &p.ConnectionDeviceID,
		&p.ConnectionModuleID, &p.DiagnosticID, &p.DiagnosticContext}
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

var (
	errMessage = errors.New("outbox: these bytes are no message")
	errFormat  = errors.New("has messages in a format that this version of the package does not know; send them " +
		"with the version that wrote them, or use another folder")
)

// hasKnownFormat reports whether an intact message has the version and flags of this package.
func hasKnownFormat(b []byte) bool { return b[0] == version && b[1] <= allFlags }

// readMessage decodes a message into m, which shares no memory with b.
func readMessage(b []byte, m *transport.Message) error {
	r := reader{b: b}
	if r.byte() != version {
		return errMessage
	}
	flags := r.byte()
	*m = transport.Message{Properties: m.Properties[:0], Retain: flags&flagRetain != 0,
		AtMostOnce: flags&flagAtMostOnce != 0}
	for _, s := range [...]*string{&m.ID, &m.CorrelationID, &m.ContentType, &m.ContentEncoding, &m.Component, &m.Topic,
		&m.ResponseTopic} {
		*s = string(r.bytes())
	}
	if flags&flagSystem != 0 {
		r.system(m)
	}
	m.Created = r.time()
	m.Expires = r.time()
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		m.Properties = append(m.Properties, transport.Property{Name: string(r.bytes()), Value: string(r.bytes())})
	}
	m.Body = append([]byte(nil), r.bytes()...)
	if r.bad || len(r.b) > 0 || flags > allFlags {
		return errMessage
	}
	return nil
}

// reader decodes b piece by piece. Once bad, it returns only zero values.
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

// system reads the section for Output and System.
func (r *reader) system(m *transport.Message) {
	system := new(transport.SystemProperties)
	for _, s := range systemTexts(m, system) {
		*s = string(r.bytes())
	}
	if *system != (transport.SystemProperties{}) {
		m.System = system
	}
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
