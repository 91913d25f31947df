package mqtt

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// CheckFirst checks the first byte of a connection, which is that of a CONNECT [MQTT-3.1.0-1]. Its
// error names the protocol that begins with another byte.
func CheckFirst(b byte) error {
	const recordOfTLS = 0x16
	speaks := "no MQTT"
	switch {
	case b == Connect<<4:
		return nil
	case b == recordOfTLS:
		speaks = "TLS, and this port has none"
	case b == 'A':
		speaks = "AMQP, and this port is for MQTT"
	case 'B' <= b && b <= 'Z':
		speaks = "HTTP, and this port is for MQTT"
	}
	return malformed("first byte 0x%02x in place of a CONNECT: the client speaks %s [MQTT-3.1.0-1]", b, speaks)
}

// ReadFrame reads a packet: its first byte and the bytes after its length. A packet of more than
// limit bytes is an error before its body is read. If torn, which is called with the first byte,
// returns true, ReadFrame reads a part of the body and returns ErrTorn.
func ReadFrame(r *bufio.Reader, limit int, torn func(first byte) bool) (first byte, body []byte, err error) {
	if first, err = r.ReadByte(); err != nil {
		return 0, nil, err
	}
	n, size := 0, 1
	for shift := 0; ; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return first, nil, midPacket(err)
		}
		n |= int(b&0x7f) << shift
		size++
		if b&0x80 == 0 {
			if b == 0 && shift > 0 {
				return first, nil, malformed("length that is not in its shortest form [MQTT-1.5.5-1]")
			}
			break
		}
		if shift == 21 {
			return first, nil, malformed("length of more than four bytes")
		}
	}
	if size += n; size > limit {
		return first, nil, &Error{PacketTooLarge, fmt.Sprintf("packet of %d bytes, at most %d are allowed", size, limit)}
	}
	if torn != nil && torn(first) {
		if _, err := r.Discard(n / 2); err != nil {
			return first, nil, midPacket(err)
		}
		return first, nil, ErrTorn
	}
	body = make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return first, nil, midPacket(err)
	}
	return first, body, nil
}

// ErrTorn says that ReadFrame stopped inside a packet.
var ErrTorn = errors.New("torn packet")

// midPacket makes the end of the stream inside a packet an unexpected one.
func midPacket(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// packet returns a packet: its first byte, its length, and the parts of its body.
func packet(first byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	all := appendLength(append(make([]byte, 0, 5+n), first), n)
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// appendLength appends a number as a variable byte integer.
func appendLength(dst []byte, n int) []byte {
	for n > 0x7f {
		dst = append(dst, byte(n)|0x80)
		n >>= 7
	}
	return append(dst, byte(n))
}
