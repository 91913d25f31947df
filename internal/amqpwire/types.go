// Package amqpwire is the AMQP 1.0 codec: values, composite types, messages and frames, from and to
// byte slices. It does no I/O and holds no state.
//
// The input's size bounds decoding: nesting, counts and sizes are checked before an allocation. A
// decoded value shares no memory with the input unless its comment says so. Decoding errors are
// *[Error] with the condition of the standard.
//
// The hub emulator and the client both use it, each with its own sessions and links. The golden
// tests here, the tests that let go-amqp decode the client's messages, and the runs of the hub with
// go-amqp and rhea and of the client with RabbitMQ check the codec against the standard.
//
// Source: OASIS AMQP 1.0, parts 1 (types), 2 (transport), 3 (messaging) and 5 (security).
package amqpwire

import "fmt"

// An AMQP value has one of these Go types:
//
//	null        nil
//	boolean     bool
//	ubyte ...   uint8, uint16, uint32, uint64
//	byte ...    int8, int16, int32, int64
//	float       float32, float64
//	decimal     Decimal32, Decimal64, Decimal128
//	char        Char
//	timestamp   Timestamp
//	uuid        UUID
//	binary      []byte
//	string      string
//	symbol      Symbol
//	list        List
//	map         Map
//	array       Array
//	described   *Described
type (
	// Symbol is an ASCII text from a domain of names.
	Symbol string
	// Char is a Unicode character.
	Char rune
	// Timestamp is milliseconds since 1970, UTC.
	Timestamp int64
	// UUID is in the order of RFC 4122.
	UUID [16]byte
	// Decimal32 is a decimal number, as its bytes.
	Decimal32 [4]byte
	// Decimal64 is a decimal number, as its bytes.
	Decimal64 [8]byte
	// Decimal128 is a decimal number, as its bytes.
	Decimal128 [16]byte
	// List holds values of any types.
	List []any
	// Map holds pairs in the order of the wire. Keys are unique.
	Map []Pair
	// Array holds values of one type. If that is a described type, all have the same descriptor.
	Array []any
)

// Pair is an entry of a map.
type Pair struct{ Key, Value any }

// Described is a value with a descriptor: a uint64 or a Symbol, in practice.
type Described struct{ Descriptor, Value any }

// Get returns the value of a key that is a string or a symbol; false when there is none.
func (m Map) Get(key string) (any, bool) {
	for _, p := range m {
		switch k := p.Key.(type) {
		case string:
			if k == key {
				return p.Value, true
			}
		case Symbol:
			if string(k) == key {
				return p.Value, true
			}
		}
	}
	return nil, false
}

// Text returns the string or symbol value of a key, empty if it has none.
func (m Map) Text(key string) string {
	v, _ := m.Get(key)
	return Text(v)
}

// Whole returns the value of a key that is an integer of any type.
func (m Map) Whole(key string) (int64, bool) {
	v, _ := m.Get(key)
	return Whole(v)
}

// Whole returns the value of an integer of any type.
func Whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), v < 1<<63
	}
	return 0, false
}

// Text returns the text of a string or symbol, empty for anything else.
func Text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case Symbol:
		return string(v)
	}
	return ""
}

// String returns the usual form with dashes.
func (u UUID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Constructors of the primitive types [AMQP 1.0, 1.6].
const (
	codeDescribed  = 0x00
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBoolean    = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeDecimal32  = 0x74
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeDecimal64  = 0x84
	codeDecimal128 = 0x94
	codeUUID       = 0x98
	codeBinary8    = 0xa0
	codeString8    = 0xa1
	codeSymbol8    = 0xa3
	codeBinary32   = 0xb0
	codeString32   = 0xb1
	codeSymbol32   = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

const (
	// maxDepth is how deep values may be nested, descriptors included.
	maxDepth = 32
	// spareItems is how many items may be decoded beyond the number of bytes, since items of an array
	// can be empty.
	spareItems = 1024
)
