// Package mqtt5 is the codec of MQTT 5 for clients, in the style of package mqttpacket and on top
// of it: pure functions that append packets to a slice and read them from one. It does no I/O,
// keeps no state and allocates only when an append must grow.
//
// Properties are blocks of bytes. To send some, append them to a slice of their own, with
// AppendNumber, AppendText and AppendPair, and hand the slice over with the packet. A block that
// was read has been checked as a whole: each property is allowed in its packet, complete, within
// its range and, unless the standard allows more, there once. Properties reads it in place.
//
// The clauses in brackets are those of the OASIS standard, version 5.0.
package mqtt5

import (
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
)

// The types of packets that package mqttpacket does not have.
const (
	Pubrec  mqttpacket.Type = 5
	Pubrel  mqttpacket.Type = 6
	Pubcomp mqttpacket.Type = 7
	Auth    mqttpacket.Type = 15
)

// Errors beside those of package mqttpacket, which are of the same type.
const (
	ErrVarint     mqttpacket.Error = "a number is written in more bytes than it needs" // [MQTT-1.5.5-1]
	ErrString     mqttpacket.Error = "a string is not UTF-8 or contains U+0000"        // [MQTT-1.5.4-1], [MQTT-1.5.4-2]
	ErrProperty   mqttpacket.Error = "a packet has a property that it must not have"   // [MQTT-2.2.2-3]
	ErrTwice      mqttpacket.Error = "a packet has a property twice"                   // section 2.2.2.2
	ErrRange      mqttpacket.Error = "a property has a value that is not allowed"      // section 2.2.2.2
	ErrIncomplete mqttpacket.Error = "a property ends before its value does"           // section 2.2.2.1
	ErrMethod     mqttpacket.Error = "authentication data without its method"          // section 3.15.2.2
)

// flags are the low four bits of each type's first byte, section 2.1.3. anyFlags stands for
// PUBLISH, noType for the type that does not exist.
var flags = [16]byte{0: noType, mqttpacket.Publish: anyFlags, Pubrel: 2, mqttpacket.Subscribe: 2,
	mqttpacket.Unsubscribe: 2}

const (
	anyFlags = 0xff
	noType   = 0xfe
)

// Next reads the fixed header at the beginning of p. It returns false when p ends within the
// header. The body may be incomplete.
func Next(p []byte) (h mqttpacket.Header, ok bool, err error) {
	if len(p) == 0 {
		return h, false, nil
	}
	h.Type, h.Flags = mqttpacket.Type(p[0]>>4), p[0]&15
	switch want := flags[h.Type&15]; {
	case want == noType:
		return h, false, mqttpacket.ErrType
	case want != anyFlags && want != h.Flags:
		return h, false, mqttpacket.ErrFlags // [MQTT-2.1.3-1]
	}
	n, size, err := varint(p[1:])
	if size == 0 || err != nil {
		return h, false, err
	}
	h.Size, h.Body = 1+size, int(n)
	return h, true, nil
}

// maxVarint is the largest number of a variable byte integer.
const maxVarint = mqttpacket.MaxBody

// varint reads a variable byte integer, section 1.5.5. size is 0 when p ends within it.
func varint(p []byte) (n uint32, size int, err error) {
	for i := range 4 {
		if i == len(p) {
			return 0, 0, nil
		}
		n |= uint32(p[i]&0x7f) << (7 * i)
		if p[i] >= 0x80 {
			continue
		}
		if p[i] == 0 && i > 0 {
			return 0, 0, ErrVarint
		}
		return n, i + 1, nil
	}
	return 0, 0, mqttpacket.ErrLength
}

// varintSize returns the size of n as a variable byte integer.
func varintSize(n int) int { return mqttpacket.HeaderSize(n) - 1 }

func appendVarint(dst []byte, n uint32) []byte {
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}

// ValidText reports whether s can be sent as a string: MaxText bytes of plain UTF-8 at most.
func ValidText(s string) bool {
	return len(s) <= mqttpacket.MaxText && utf8.ValidString(s) && mqttpacket.PlainText(s)
}
