package amqpwire

import (
	"encoding/binary"
	"fmt"
)

const (
	// HeaderSize is the size of a frame's header without extension, and of a protocol header.
	HeaderSize = 8
	// MinMaxFrameSize is the size of frames that every peer accepts, and the limit until an open was
	// read.
	MinMaxFrameSize = 512
)

// Protocol ids of a protocol header.
const (
	ProtocolAMQP byte = 0
	ProtocolSASL byte = 3
)

// ProtocolHeader returns the eight bytes of the protocol header for version 1.0.0 [2.2].
func ProtocolHeader(id byte) [HeaderSize]byte { return [...]byte{'A', 'M', 'Q', 'P', id, 1, 0, 0} }

// Types of frames.
const (
	FrameAMQP byte = 0
	FrameSASL byte = 1
)

// Frame is a frame split into its parts.
type Frame struct {
	Type    byte
	Channel uint16
	Body    []byte // shares memory with the input; empty in a keep-alive frame

	// Tolerant makes Performative take a string for a symbol and the other way, as some brokers send.
	Tolerant bool
}

// Split reads a frame from the front of b. n is its size, zero while b does not hold all of it. A
// malformed frame, or one larger than limit, is an error.
func Split(b []byte, limit uint32) (f Frame, n int, err error) {
	if len(b) < 4 {
		return Frame{}, 0, nil
	}
	size := binary.BigEndian.Uint32(b)
	switch {
	case size < HeaderSize:
		return Frame{}, 0, Errorf(FramingError, "frame of %d bytes", size)
	case size > limit:
		return Frame{}, 0, Errorf(FramingError, "frame of %d bytes, at most %d are allowed", size, limit)
	case len(b) >= HeaderSize:
		begin := uint32(b[4]) * 4
		if begin < HeaderSize || begin > size {
			return Frame{}, 0, Errorf(FramingError, "frame of %d bytes whose body begins at %d", size, begin)
		}
		if b[5] != FrameAMQP && b[5] != FrameSASL {
			return Frame{}, 0, Errorf(FramingError, "frame of type %d", b[5])
		}
		if uint32(len(b)) >= size {
			return Frame{Type: b[5], Channel: binary.BigEndian.Uint16(b[6:]), Body: b[begin:size:size]}, int(size), nil
		}
	}
	return Frame{}, 0, nil
}

// Performative reads the performative at the beginning of a frame's body. The payload is the rest;
// it shares memory with the frame.
func (f Frame) Performative() (p Performative, payload []byte, err error) {
	kinds := performatives
	if f.Type == FrameSASL {
		kinds = saslPerformatives
	}
	d := newDecoder(f.Body)
	v, err := d.value(0)
	if err != nil {
		return nil, nil, err
	}
	described, ok := v.(*Described)
	if !ok {
		return nil, nil, malformed("body of a frame is a %T", v)
	}
	c, bad := undescribe(described, kinds, f.Tolerant)
	if bad != nil {
		return nil, nil, bad
	}
	if _, ok := c.(*Transfer); !ok && len(d.b) > 0 {
		return nil, nil, malformed("%d bytes behind %s", len(d.b), names[c.code()])
	}
	return c, d.b, nil
}

// AppendFrame appends a frame. A nil performative makes a keep-alive frame. It fails as [Append]
// does.
func AppendFrame(dst []byte, channel uint16, p Performative, payload []byte) ([]byte, error) {
	start := len(dst)
	kind := FrameAMQP
	if p != nil && saslPerformatives[p.code()] != nil {
		kind = FrameSASL
	}
	dst = append(dst, 0, 0, 0, 0, 2, kind, byte(channel>>8), byte(channel))
	if p != nil {
		var err error
		if dst, err = Append(dst, describe(p)); err != nil {
			return dst[:start], fmt.Errorf("%s: %w", names[p.code()], err)
		}
	}
	dst = append(dst, payload...)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start))
	return dst, nil
}
