package nextwire

import "encoding/binary"

// A Message is a protobuf message: a pointer to a struct of this package.
type Message interface {
	// fields names each field once, for both directions.
	fields(c *coder)
}

// Append appends the bytes of m, its fields in the order of their numbers.
func Append(dst []byte, m Message) []byte {
	c := coder{out: dst, encode: true}
	m.fields(&c)
	return c.out
}

// Decode reads b into m, which is empty before. Slices in m are parts of b. The error is
// ErrMalformed. Unknown fields are skipped, and so are known ones of another wire type, as protobuf
// has it.
func Decode(b []byte, m Message) error {
	for len(b) > 0 {
		c := coder{}
		if b = c.next(b); b == nil {
			return ErrMalformed
		}
		m.fields(&c)
		if c.malformed {
			return ErrMalformed
		}
	}
	return nil
}

// Wire types. Groups, 3 and 4, are malformed here.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// A coder appends the fields of a message to out, or has one field of a message for the one that
// bears its number.
type coder struct {
	encode bool
	out    []byte

	number    uint64
	wire      byte
	varint    uint64 // for wireVarint
	body      []byte // for wireBytes, never nil
	malformed bool
}

// next reads one field, and returns the rest, which is not nil. Nil: malformed.
func (c *coder) next(b []byte) (rest []byte) {
	tag, b := varint(b)
	c.number, c.wire = tag>>3, byte(tag&7)
	if b == nil || c.number == 0 || c.number >= 1<<29 {
		return nil
	}
	size := uint64(0)
	switch c.wire {
	case wireVarint:
		c.varint, b = varint(b)
		return b
	case wireFixed64:
		size = 8
	case wireFixed32:
		size = 4
	case wireBytes:
		if size, b = varint(b); b == nil {
			return nil
		}
	default:
		return nil
	}
	if size > uint64(len(b)) {
		return nil
	}
	c.body = b[:size:size]
	return b[size:]
}

// varint returns a nil rest if b begins with no varint of 64 bits.
func varint(b []byte) (v uint64, rest []byte) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil
	}
	return v, b[n:]
}

// has reports whether the field that was read is number n of this wire type.
func (c *coder) has(n uint64, wire byte) bool { return !c.encode && c.number == n && c.wire == wire }

// tag appends a field's number and wire type, and the number that follows them.
func (c *coder) tag(n uint64, wire byte, v uint64) {
	c.out = binary.AppendUvarint(binary.AppendUvarint(c.out, n<<3|uint64(wire)), v)
}

func (c *coder) uint64(n uint64, v *uint64) {
	switch {
	case c.encode && *v != 0:
		c.tag(n, wireVarint, *v)
	case c.has(n, wireVarint):
		*v = c.varint
	}
}

// uint32 is malformed if the number does not fit: the service's own clients have it so.
func (c *coder) uint32(n uint64, v *uint32) {
	wide := uint64(*v)
	c.uint64(n, &wide)
	*v = uint32(wide)
	c.malformed = c.malformed || wide>>32 != 0
}

func (c *coder) int64(n uint64, v *int64) {
	wide := uint64(*v)
	c.uint64(n, &wide)
	*v = int64(wide)
}

// int32 is for numbers and enumerations. A negative one has ten bytes; of a larger one the low bits
// count, as protobuf has it.
func (c *coder) int32(n uint64, v *int32) {
	wide := int64(*v)
	c.int64(n, &wide)
	*v = int32(wide)
}

func (c *coder) bool(n uint64, v *bool) {
	wide := uint64(0)
	if *v {
		wide = 1
	}
	c.uint64(n, &wide)
	*v = wide != 0
}

// optionalBytes tells none, which is nil, from an empty value.
func (c *coder) optionalBytes(n uint64, v *[]byte) {
	switch {
	case c.encode && *v != nil:
		c.tag(n, wireBytes, uint64(len(*v)))
		c.out = append(c.out, *v...)
	case c.has(n, wireBytes):
		*v = c.body
	}
}

func (c *coder) bytes(n uint64, v *[]byte) {
	if !c.encode || len(*v) > 0 {
		c.optionalBytes(n, v)
	}
}

func (c *coder) string(n uint64, v *string) {
	switch {
	case c.encode && *v != "":
		c.tag(n, wireBytes, uint64(len(*v)))
		c.out = append(c.out, *v...)
	case c.has(n, wireBytes):
		*v = string(c.body)
	}
}

// optional is for a message in a message; nil is none. It reports whether it read one. A second one
// of the same number is merged with the first, as protobuf has it.
func optional[T any, P interface {
	*T
	Message
}](c *coder, n uint64, v *P) bool {
	switch {
	case c.encode && *v != nil:
		inner := Append([]byte{}, *v)
		c.optionalBytes(n, &inner)
	case c.has(n, wireBytes):
		if *v == nil {
			*v = new(T)
		}
		c.malformed = c.malformed || Decode(c.body, *v) != nil
		return true
	}
	return false
}
