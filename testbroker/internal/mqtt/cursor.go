package mqtt

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// A cursor reads the fields of a packet. The first field that is not there or not valid sets err;
// later reads return zero values.
type cursor struct {
	left []byte
	err  error
}

func (c *cursor) take(n int, what string) []byte {
	if c.err == nil && n > len(c.left) {
		c.err = malformed("packet ends inside its %s", what)
	}
	if c.err != nil {
		return nil
	}
	p := c.left[:n:n]
	c.left = c.left[n:]
	return p
}

func (c *cursor) byte(what string) byte {
	if p := c.take(1, what); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) uint16(what string) uint16 {
	if p := c.take(2, what); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (c *cursor) uint32(what string) uint32 {
	if p := c.take(4, what); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

// length reads a variable byte integer.
func (c *cursor) length(what string) int {
	n := 0
	for shift := 0; shift <= 21; shift += 7 {
		b := c.byte(what)
		n |= int(b&0x7f) << shift
		if b&0x80 == 0 {
			if b == 0 && shift > 0 && c.err == nil {
				c.err = malformed("%s that is not in its shortest form [MQTT-1.5.5-1]", what)
			}
			return n
		}
	}
	if c.err == nil {
		c.err = malformed("%s of more than four bytes", what)
	}
	return 0
}

// binary reads bytes with their length before them.
func (c *cursor) binary(what string) []byte { return c.take(int(c.uint16(what)), what) }

func (c *cursor) text(what string) string {
	s := string(c.binary(what))
	if c.err == nil && (!utf8.ValidString(s) || strings.ContainsRune(s, 0)) {
		c.err = malformed("%s that is not text [MQTT-1.5.4-1]", what)
	}
	return s
}

func (c *cursor) id() uint16 {
	id := c.uint16("packet id")
	if id == 0 && c.err == nil {
		c.err = violation("packet id 0 [MQTT-2.2.1-3]")
	}
	return id
}

// end returns the error, or one for bytes after the last field.
func (c *cursor) end() error {
	if c.err == nil && len(c.left) > 0 {
		c.err = malformed("%d bytes after the packet's last field", len(c.left))
	}
	return c.err
}

// fail sets the error unless there is one.
func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

func appendUint16(dst []byte, n uint16) []byte { return binary.BigEndian.AppendUint16(dst, n) }

func appendText(dst []byte, s string) []byte {
	return append(appendUint16(dst, uint16(len(s))), s...)
}
