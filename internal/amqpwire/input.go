package amqpwire

import (
	"encoding/binary"
	"math"
)

// An input is what is left of an encoding, for a decoder or a [Walker].
type input struct {
	b     []byte
	items int // how many values may still follow
}

// enter reads size and count of a list, map or array. The size counts the bytes behind its field.
func (r *input) enter(code byte) (inner input, count int, err error) {
	n, err := r.length(code)
	if err != nil {
		return inner, 0, err
	}
	p, err := r.take(n)
	if err != nil {
		return inner, 0, err
	}
	inner = input{b: p, items: r.items}
	if count, err = inner.length(code); err != nil {
		return inner, 0, err
	}
	if count > inner.items {
		return inner, 0, malformed("too many items")
	}
	return inner, count, nil
}

// length reads a length or a count. It has four bytes where the constructor's high nibble is odd,
// else one.
func (r *input) length(code byte) (int, error) {
	if code&0x10 == 0 {
		n, err := r.byte()
		return int(n), err
	}
	p, err := r.take(4)
	if err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(p)
	if n > math.MaxInt32 {
		return 0, malformed("length %d", n)
	}
	return int(n), nil
}

func (r *input) byte() (byte, error) {
	if len(r.b) == 0 {
		return 0, malformed("value cut short")
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c, nil
}

func (r *input) take(n int) ([]byte, error) {
	if n > len(r.b) {
		return nil, malformed("value cut short: %d bytes of %d", len(r.b), n)
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p, nil
}

// widthOf returns the least number of bytes behind a constructor.
func widthOf(code byte) int {
	return [16]int{4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16, 0xa: 1, 0xb: 4, 0xc: 2, 0xd: 8, 0xe: 3, 0xf: 9}[code>>4]
}
