// Package mqttwire has what all clients of MQTT share of MQTT itself, on boards too: the codec of
// 3.1.1 and 5, the meaning of codes, errors, and the backlog of messages without room.
//
// The codec is pure functions that append packets to a slice and read them from one. They do no I/O
// and allocate only when an append must grow.
//
// The Append functions append whole packets, except AppendPublish: the caller appends topic and
// payload itself and needs no copy of them. To read a packet, Next splits off its header, and the
// function for its type reads its body; slices in the results are parts of the input.
//
// A function whose name ends with 5 is for MQTT 5 where its namesake is for MQTT 3.1.1. Files
// mqtt5_*.go have what MQTT 5 adds: a program that speaks 3.1.1 calls nothing there, so linkers
// leave it out.
//
// The properties of MQTT 5 are blocks of bytes. To send some, append them to a slice of their own,
// with AppendNumber, AppendString and AppendPair, and hand the slice over with the packet. A block
// that was read has been checked as a whole: each property is allowed in its packet, complete and,
// unless the standard allows more, there once. Its value is one that the standard allows, except in
// a PUBLISH: see Property.Check. Properties reads the block in place.
//
// QoS 0 and 1 can be sent; ReadPublish also reads QoS 2. The clauses in brackets are those of the
// OASIS standards: of 3.1.1, and of 5.0 where the code is about MQTT 5.
package mqttwire

import "encoding/binary"

// Type is a packet's type, section 2.2.1.
type Type byte

// The types. Auth exists in MQTT 5 only.
const (
	Connect     Type = 1
	Connack     Type = 2
	Publish     Type = 3
	Puback      Type = 4
	Pubrec      Type = 5
	Pubrel      Type = 6
	Pubcomp     Type = 7
	Subscribe   Type = 8
	Suback      Type = 9
	Unsubscribe Type = 10
	Unsuback    Type = 11
	Pingreq     Type = 12
	Pingresp    Type = 13
	Disconnect  Type = 14
	Auth        Type = 15
)

const (
	// MaxBody is the largest remaining length, section 2.2.3.
	MaxBody = 1<<28 - 1
	// MaxText is the longest string, topic or password in bytes, section 1.5.3.
	MaxText = 1<<16 - 1
	// MaxHeader is the longest fixed header.
	MaxHeader = 5
)

// Error is a violation by the peer, or a wrong argument of the caller.
type Error string

// Error returns the text.
func (e Error) Error() string { return string(e) }

// The errors. Each is about one packet; after it the stream cannot be read further.
const (
	ErrLength Error = "a packet's length has more than 4 bytes"         // section 2.2.3
	ErrFlags  Error = "a packet has flags that its type does not allow" // [MQTT-2.2.2-2]
	ErrType   Error = "a packet has a type that does not exist"         // table 2.1
	ErrShort  Error = "a packet ends before its fields do"              //
	ErrLong   Error = "a packet goes on after its fields"               //
	ErrID     Error = "a packet has the packet id 0"                    // [MQTT-2.3.1-1]
	// [MQTT-3.3.2-1], [MQTT-3.3.2-2], [MQTT-4.7.3-1], [MQTT-4.7.3-2]
	ErrTopic    Error = "a topic is empty or not valid"
	ErrQoS      Error = "a PUBLISH has QoS 3"                              // [MQTT-3.3.1-4]
	ErrDup      Error = "a PUBLISH has DUP with QoS 0"                     // [MQTT-3.3.1-2]
	ErrReserved Error = "a CONNACK has reserved flags"                     // section 3.2.2.1
	ErrText     Error = "a text is longer than 65535 bytes"                // section 1.5.3
	ErrPassword Error = "a password needs a user name"                     // [MQTT-3.1.2-22]
	ErrEmpty    Error = "a SUBSCRIBE, SUBACK or UNSUBACK is about nothing" // [MQTT-3.8.3-3]
)

// Errors of MQTT 5 alone.
const (
	ErrVarint     Error = "a number is written in more bytes than it needs" // [MQTT-1.5.5-1]
	ErrString     Error = "a string is not UTF-8 or contains U+0000"        // [MQTT-1.5.4-1], [MQTT-1.5.4-2]
	ErrProperty   Error = "a packet has a property that it must not have"   // [MQTT-2.2.2-3]
	ErrTwice      Error = "a packet has a property twice"                   // section 2.2.2.2
	ErrRange      Error = "a property has a value that is not allowed"      // section 2.2.2.2
	ErrIncomplete Error = "a property ends before its value does"           // section 2.2.2.1
	ErrMethod     Error = "authentication data without its method"          // section 3.15.2.2
)

// level is the protocol level of a CONNECT, section 3.1.2.2.
type level byte

const (
	level311 level = 4
	level5   level = 5
)

// flags are the low four bits of each type's first byte, table 2.2.
var flags = [16]byte{Publish: anyFlags, Pubrel: 2, Subscribe: 2, Unsubscribe: 2}

const anyFlags = 0xff

// A Header is a packet's fixed header.
type Header struct {
	Type  Type
	Flags byte
	// Size is the size of the header, 2 to 5 bytes.
	Size int
	// Body is the remaining length.
	Body int
}

// Next reads the fixed header at the beginning of p. It returns false when p ends within the
// header. The body may be incomplete.
func Next(p []byte) (h Header, ok bool, err error) { return next(p, level311) }

// Next5 reads the fixed header at the beginning of p, like Next.
func Next5(p []byte) (h Header, ok bool, err error) { return next(p, level5) }

func next(p []byte, l level) (h Header, ok bool, err error) {
	if len(p) == 0 {
		return h, false, nil
	}
	h.Type, h.Flags = Type(p[0]>>4), p[0]&15
	switch want := flags[h.Type&15]; {
	case h.Type == 0, h.Type == Auth && l == level311:
		return h, false, ErrType
	case want != anyFlags && want != h.Flags:
		return h, false, ErrFlags
	}
	n, size, err := varint(p[1:])
	if size > 0 && l == level311 { // which allows ErrVarint
		err = nil
	}
	if size == 0 || err != nil {
		return h, false, err
	}
	h.Size, h.Body = 1+size, int(n)
	return h, true, nil
}

// varint reads a remaining length, or another variable byte integer. size is 0 when p ends within
// it. With ErrVarint, n and size are valid.
func varint(p []byte) (n uint32, size int, err error) {
	for i := range MaxHeader - 1 {
		if i == len(p) {
			return 0, 0, nil
		}
		n |= uint32(p[i]&0x7f) << (7 * i)
		if p[i] >= 0x80 {
			continue
		}
		if p[i] == 0 && i > 0 {
			err = ErrVarint
		}
		return n, i + 1, err
	}
	return 0, 0, ErrLength
}

func appendVarint(dst []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}

// HeaderSize returns the size of a fixed header before a body of n bytes.
func HeaderSize(n int) int {
	switch {
	case n < 1<<7:
		return 2
	case n < 1<<14:
		return 3
	case n < 1<<21:
		return 4
	}
	return 5
}

// AppendHeader appends a fixed header. body is MaxBody at most.
func AppendHeader(dst []byte, t Type, flags byte, body int) []byte {
	return appendVarint(append(dst, byte(t)<<4|flags), body)
}

// AppendID appends a packet id, or any other number of two bytes.
func AppendID(dst []byte, id uint16) []byte { return binary.BigEndian.AppendUint16(dst, id) }

// readID reads the packet id at the beginning of a body.
func readID(body []byte) (id uint16, err error) {
	if len(body) < 2 {
		return 0, ErrShort
	}
	if id = binary.BigEndian.Uint16(body); id == 0 {
		return 0, ErrID
	}
	return id, nil
}

// appendField appends bytes with their length in front, MaxText bytes at most.
func appendField[T string | []byte](dst []byte, s T) []byte {
	return append(AppendID(dst, uint16(len(s))), s...)
}

// field reads bytes with their length in front, and its size: 0 when p ends within them.
func field(p []byte) ([]byte, int) {
	if len(p) < 2 {
		return nil, 0
	}
	n := 2 + int(binary.BigEndian.Uint16(p))
	if n > len(p) {
		return nil, 0
	}
	return p[2:n:n], n
}
