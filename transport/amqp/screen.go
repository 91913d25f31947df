package amqp

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// screen looks at messages before the library gets them: an annotation whose key is no simple value makes it panic, on a goroutine where nobody can recover (go-amqp 1.7,
// encoding.Annotations.Unmarshal), so anybody who can send a message over a broker could end the program.
type screen struct {
	parts map[delivery]*part // messages of which more is to come
	// sessions is how many the peer allows; 0 before its open. It may be read from anywhere.
	sessions atomic.Int32
	ended    int // sessions that the peer has ended, which the library has not been told yet
}

// delivery is where a message comes in.
type delivery struct {
	channel uint16
	handle  uint32
}

// part is the beginning of a message.
type part struct {
	id      uint32
	payload []byte
}

// maxMessage is the largest message in several frames that is taken. The library would put any number of them together.
const maxMessage = 16 << 20

// What a frame of interest is, by its performative.
const (
	codeOpen     = 0x10
	codeAttach   = 0x12
	codeTransfer = 0x14
	codeDetach   = 0x16
)

// interesting reports whether a frame that begins so has to be looked at.
func interesting(head []byte) bool {
	if head[5] != wire.FrameAMQP {
		return false
	}
	if head[4] == 2 && head[8] == 0 && head[9] == 0x53 {
		switch head[10] {
		case codeOpen, codeBegin, codeAttach, codeTransfer, codeDetach, codeEnd:
		default:
			return false
		}
	}
	return true
}

// frame takes a frame in. It returns an error for one that must not get to the library.
func (s *screen) frame(b []byte) error {
	begin := int(b[4]) * 4
	if begin < wire.HeaderSize || begin >= len(b) {
		return nil // empty, or nonsense that the library refuses
	}
	channel := binary.BigEndian.Uint16(b[6:])
	v, payload, err := wire.Decode(b[begin:])
	d, _ := v.(*wire.Described)
	if err != nil || d == nil {
		return errUnsound
	}
	fields, _ := d.Value.(wire.List)
	field := func(i int) any {
		if i < len(fields) {
			return fields[i]
		}
		return nil
	}
	at := func(i int) delivery {
		handle, _ := field(i).(uint32)
		return delivery{channel, handle}
	}
	switch d.Descriptor {
	case uint64(codeOpen):
		highest, given := field(3).(uint16)
		if !given {
			highest = math.MaxUint16
		}
		s.sessions.Store(int32(highest) + 1)
	case uint64(codeBegin), uint64(codeEnd):
		for k := range s.parts {
			if k.channel == channel {
				delete(s.parts, k)
			}
		}
		if d.Descriptor == uint64(codeEnd) {
			s.ended++
		}
	case uint64(codeAttach):
		delete(s.parts, at(1))
	case uint64(codeDetach):
		delete(s.parts, at(0))
	case uint64(codeTransfer):
		id, given := field(1).(uint32)
		if !given && field(1) != nil {
			return errUnsound
		}
		return s.transfer(at(0), id, given, field(5) == true, field(9) == true, payload)
	}
	return nil
}

// transfer takes a message or a part of one in. id is the delivery's, which parts after the first need not give.
func (s *screen) transfer(from delivery, id uint32, given, more, aborted bool, payload []byte) error {
	p := s.parts[from]
	if p != nil && given && id != p.id {
		p = nil // the one before was never finished
	}
	if p != nil {
		if len(p.payload)+len(payload) > maxMessage {
			return errTooLong
		}
		p.payload = append(p.payload, payload...)
		payload = p.payload
	}
	switch {
	case aborted || !more:
		delete(s.parts, from)
	case p == nil:
		if s.parts == nil {
			s.parts = make(map[delivery]*part)
		}
		s.parts[from] = &part{id, append([]byte(nil), payload...)}
	}
	if aborted || more || sound(payload) {
		return nil
	}
	return errUnsound
}

// sound reports whether the library can read a message without harm.
func sound(message []byte) bool {
	for len(message) > 0 {
		v, rest, err := wire.Decode(message)
		section, _ := v.(*wire.Described)
		if err != nil || section == nil {
			return false
		}
		if annotations, ok := section.Value.(wire.Map); ok {
			for _, pair := range annotations {
				switch pair.Key.(type) {
				case nil, []byte, wire.List, wire.Map, wire.Array, *wire.Described:
					return false
				}
			}
		}
		message = rest
	}
	return true
}
