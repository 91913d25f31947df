// Package amqpenc appends AMQP 1.0 values in their encoding. It allocates only when a buffer must
// grow.
package amqpenc

import "encoding/binary"

// Codes of AMQP's types [AMQP 1.0, 1.6].
const (
	Described = 0x00
	Null      = 0x40
	True      = 0x41
	SmallCode = 0x53 // a descriptor in one byte
	Timestamp = 0x83
	List8     = 0xc0
	List32    = 0xd0
	Map32     = 0xd1
)

// Descriptors of the sections of a message [3.2].
const (
	Annotations           = 0x72
	Properties            = 0x73
	ApplicationProperties = 0x74
	Data                  = 0x75
)

// Variable holds the two codes of a type with a length, of one byte and of four.
type Variable struct{ short, long byte }

// The types with a length.
var (
	Binary = Variable{0xa0, 0xb0}
	String = Variable{0xa1, 0xb1}
	Symbol = Variable{0xa3, 0xb3}
)

// AppendText appends a text of type t.
func AppendText(dst []byte, t Variable, s string) []byte {
	return append(appendLength(dst, t, len(s)), s...)
}

// AppendBytes appends the bytes of a value of type t.
func AppendBytes(dst []byte, t Variable, p []byte) []byte {
	return append(appendLength(dst, t, len(p)), p...)
}

func appendLength(dst []byte, t Variable, n int) []byte {
	if n < 256 {
		return append(dst, t.short, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, t.long), uint32(n))
}

// AppendUint32 appends a uint in its shortest encoding.
func AppendUint32(dst []byte, n uint32) []byte {
	switch {
	case n == 0:
		return append(dst, 0x43)
	case n < 256:
		return append(dst, 0x52, byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0x70), n)
}

// Open begins a list or map with the code List32 or Map32. Close fills in its size and count.
func Open(dst []byte, code byte) (out []byte, at int) {
	return append(dst, code, 0, 0, 0, 0, 0, 0, 0, 0), len(dst) + 1
}

// Close ends the list or map that begins at at.
func Close(dst []byte, at, count int) {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	binary.BigEndian.PutUint32(dst[at+4:], uint32(count))
}
