// Package mqttpacket is the codec of MQTT 3.1.1 for clients: pure functions that append packets to
// a slice and read them from one. It does no I/O, keeps no state, starts no goroutine and allocates
// only when an append must grow.
//
// The Append functions append whole packets, except AppendPublish: the caller appends topic and
// payload itself and needs no copy of them. To read a packet, Next splits off its header, and the
// function for its type reads its body; slices in the results are parts of the input.
//
// QoS 0 and 1 can be sent; ReadPublish also reads QoS 2. The clauses in brackets are those of the
// OASIS standard.
package mqttpacket

import (
	"encoding/binary"
	"unicode/utf8"
)

// Type is a packet's type, section 2.2.1.
type Type byte

// The types that a client sends or receives; those of QoS 2 are left out.
const (
	Connect     Type = 1
	Connack     Type = 2
	Publish     Type = 3
	Puback      Type = 4
	Subscribe   Type = 8
	Suback      Type = 9
	Unsubscribe Type = 10
	Unsuback    Type = 11
	Pingreq     Type = 12
	Pingresp    Type = 13
	Disconnect  Type = 14
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
	ErrTopic    Error = "a PUBLISH has a topic that is none"
	ErrQoS      Error = "a PUBLISH has QoS 3"                                 // [MQTT-3.3.1-4]
	ErrDup      Error = "a PUBLISH has DUP with QoS 0"                        // [MQTT-3.3.1-2]
	ErrReserved Error = "a CONNACK has reserved flags"                        // section 3.2.2.1
	ErrText     Error = "a text is longer than 65535 bytes"                   // section 1.5.3
	ErrPassword Error = "a password needs a user name"                        // [MQTT-3.1.2-22]
	ErrEmpty    Error = "a SUBSCRIBE, UNSUBSCRIBE or SUBACK is about nothing" // [MQTT-3.8.3-3], [MQTT-3.10.3-2]
)

// flags are the low four bits of each type's first byte, table 2.2. anyFlags stands for PUBLISH,
// noType for types that do not exist.
var flags = [16]byte{0: noType, 1: 0, 2: 0, 3: anyFlags, 4: 0, 5: 0, 6: 2, 7: 0, 8: 2, 9: 0, 10: 2, 11: 0, 12: 0, 13: 0,
	14: 0, 15: noType}

const (
	anyFlags = 0xff
	noType   = 0xfe
)

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
func Next(p []byte) (h Header, ok bool, err error) {
	if len(p) == 0 {
		return h, false, nil
	}
	h.Type, h.Flags = Type(p[0]>>4), p[0]&15
	switch want := flags[h.Type&15]; {
	case want == noType:
		return h, false, ErrType
	case want != anyFlags && want != h.Flags:
		return h, false, ErrFlags
	}
	for i := 1; i < MaxHeader; i++ {
		if i == len(p) {
			return h, false, nil
		}
		h.Body |= int(p[i]&0x7f) << (7 * (i - 1))
		if p[i] < 0x80 {
			h.Size = i + 1
			return h, true, nil
		}
	}
	return h, false, ErrLength
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
	dst = append(dst, byte(t)<<4|flags)
	for body >= 0x80 {
		dst = append(dst, byte(body)|0x80)
		body >>= 7
	}
	return append(dst, byte(body))
}

// AppendID appends a packet id, or any other number of two bytes.
func AppendID(dst []byte, id uint16) []byte { return binary.BigEndian.AppendUint16(dst, id) }

func appendText(dst []byte, s string) []byte {
	return append(AppendID(dst, uint16(len(s))), s...)
}

// PlainText reports whether s, which is UTF-8, has no character that MQTT advises against in texts
// and for which brokers such as mosquitto close the connection: controls and noncharacters (section
// 1.5.3; 1.5.4 of MQTT 5).
func PlainText(s string) bool {
	for _, r := range s {
		if r < ' ' || 0x7f <= r && r < 0xa0 || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe {
			return false
		}
	}
	return true
}

// ValidTopic reports whether a message can be published under t: not empty, UTF-8 without U+0000
// and wildcards, MaxText bytes at most.
func ValidTopic(t []byte) bool {
	if len(t) == 0 || len(t) > MaxText || !utf8.Valid(t) {
		return false
	}
	for _, b := range t {
		if b == 0 || b == '+' || b == '#' {
			return false
		}
	}
	return true
}
