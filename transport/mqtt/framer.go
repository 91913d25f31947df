package mqtt

import (
	"encoding/binary"
	"strconv"

	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Packet types of MQTT 3.1.1, section 2.2.1.
const (
	typeConnect    = 1
	typeConnack    = 2
	typePublish    = 3
	typePuback     = 4
	typeSubscribe  = 8
	typeSuback     = 9
	typePingreq    = 12
	typePingresp   = 13
	typeDisconnect = 14
)

const (
	// maxIncoming caps a packet's remaining length. The largest packets from a hub carry the JSON of a
	// method or twin.
	maxIncoming = 1 << 20
	// maxSubackCodes is the most return codes in a SUBACK that pass.
	maxSubackCodes = dialect.MaxFilters
)

// bodySize is the least and the most bytes that a hub may send in a packet's body, by packet type.
// Types with max below min are refused. PUBLISH is the only type whose body is not kept whole. Some
// hubs send DISCONNECT before they close, though 3.1.1 allows it to clients only.
var bodySize = [16]struct{ min, max int }{
	0: never, 1: never, 5: never, 6: never, 7: never, 8: never, 10: never, 11: never, 12: never, 15: never,
	typeConnack:    {2, 2},
	typePublish:    {3, maxIncoming},
	typePuback:     {2, 2},
	typeSuback:     {3, 2 + maxSubackCodes},
	typePingresp:   {0, 0},
	typeDisconnect: {0, 0},
}

var never = struct{ min, max int }{1, 0}

// A frameSink is notified of the packets that need an action. An error that it returns ends the
// stream. It is called on the reading goroutine.
type frameSink interface {
	connack(code byte) error
	puback(id uint16) error
	// codes is valid until return.
	suback(id uint16, codes []byte) error
	pingresp()
}

// framer checks the hub's bytes as they pass, so that the library sees only packets that it can
// survive: it allocates a packet's announced length at once, takes unknown return codes for
// success, and indexes by the number of SUBACK codes. PUBACKs are dropped here, and SUBACKs get the
// library's packet id (subIDMask).
//
// Each packet goes through the states
//
//	header -> length (1 to 4 bytes) -> small                          (all but PUBLISH: body of at most 34 bytes)
//	                                -> topicSize -> topic -> id -> payload   (PUBLISH; id with QoS 1 only)
//
// and back to header.
type framer struct {
	sink frameSink
	// connected is set by the first packet, a CONNACK.
	connected bool

	state   frameState
	kind    byte
	flags   byte
	shift   uint   // of the next length byte's bits
	left    int    // bytes of the body not yet read
	skip    int    // bytes of the topic not yet read
	kept    []byte // bytes collected in the states small, topicSize, id
	keptBuf [2 + maxSubackCodes]byte
}

type frameState uint8

const (
	inHeader frameState = iota
	inLength
	inSmall
	inTopicSize
	inTopic
	inID
	inPayload
)

// scan checks the next bytes of the stream and returns those that pass, moved to the front of p.
// After an error it must not be called again.
func (f *framer) scan(p []byte) ([]byte, error) {
	pass := p[:0]
	for len(p) > 0 {
		n, err := f.step(p)
		if err != nil {
			return pass, err
		}
		if f.kind != typePuback {
			pass = append(pass, p[:n]...)
		}
		p = p[n:]
	}
	return pass, nil
}

// step consumes at least one byte of p, which is not empty.
func (f *framer) step(p []byte) (int, error) {
	switch f.state {
	case inHeader:
		return 1, f.header(p[0])
	case inLength:
		return 1, f.length(p[0])
	case inTopic:
		n := min(f.skip, len(p))
		f.skip -= n
		f.left -= n
		if f.skip == 0 {
			f.afterTopic()
		}
		return n, nil
	case inPayload:
		n := min(f.left, len(p))
		f.left -= n
		if f.left == 0 {
			f.state = inHeader
		}
		return n, nil
	case inSmall, inTopicSize, inID:
	}
	if f.kind == typeSuback && len(f.kept) < 2 {
		p[0] ^= subIDMask[len(f.kept)]
	}
	f.kept = append(f.kept, p[0])
	f.left--
	switch f.state {
	case inTopicSize:
		return 1, f.topicSize()
	case inID:
		return 1, f.publishID()
	default:
		return 1, f.small()
	}
}

func (f *framer) header(b byte) error {
	f.kind, f.flags = b>>4, b&15
	if bodySize[f.kind].min > bodySize[f.kind].max {
		return violation("the hub sent a packet of type " + strconv.Itoa(int(f.kind)) + ", which is not for clients")
	}
	if f.connected == (f.kind == typeConnack) {
		return violation("the hub's first packet is not its only CONNACK") // [MQTT-3.2.0-1]
	}
	if f.kind == typePublish {
		if f.flags>>1&3 > 1 {
			return violation("the hub sent a PUBLISH with a QoS above 1, which was not requested")
		}
	} else if f.flags != 0 {
		return violation("the hub set reserved flags in a packet of type " + strconv.Itoa(int(f.kind))) // [MQTT-2.2.2-2]
	}
	f.state, f.left, f.shift = inLength, 0, 0
	f.kept = f.keptBuf[:0]
	return nil
}

func (f *framer) length(b byte) error {
	f.left |= int(b&0x7f) << f.shift
	if b&0x80 != 0 {
		if f.shift += 7; f.shift > 21 {
			return violation("the hub sent a packet length of more than 4 bytes")
		}
		return nil
	}
	if size := bodySize[f.kind]; f.left < size.min || f.left > size.max {
		return violation("the hub sent a packet of type " + strconv.Itoa(int(f.kind)) + " with " + strconv.Itoa(f.left) +
			" bytes")
	}
	switch {
	case f.kind == typePublish:
		f.state = inTopicSize
	case f.left == 0:
		f.state = inHeader
		if f.kind == typePingresp {
			f.sink.pingresp()
		}
	default:
		f.state = inSmall
	}
	return nil
}

// small collects the body of a small packet and reports the packet when it is whole. The last byte
// of a packet that the sink refuses does not pass.
func (f *framer) small() error {
	if f.left > 0 {
		return nil
	}
	f.state = inHeader
	switch f.kind {
	case typeConnack:
		if f.kept[0] > 1 {
			return violation("the hub set reserved flags in its CONNACK")
		}
		f.connected = true
		return f.sink.connack(f.kept[1])
	case typePuback:
		return f.sink.puback(binary.BigEndian.Uint16(f.kept))
	default: // SUBACK
		return f.sink.suback(binary.BigEndian.Uint16(f.kept), f.kept[2:])
	}
}

func (f *framer) topicSize() error {
	if len(f.kept) < 2 {
		return nil
	}
	f.skip = int(binary.BigEndian.Uint16(f.kept))
	need := f.skip
	if f.flags>>1&3 == 1 {
		need += 2
	}
	if f.skip == 0 || need > f.left {
		return violation("the hub sent a PUBLISH whose topic does not fit") // [MQTT-4.7.3-1] for the empty one
	}
	f.state = inTopic
	return nil
}

func (f *framer) afterTopic() {
	f.kept = f.keptBuf[:0]
	switch {
	case f.flags>>1&3 == 1:
		f.state = inID
	case f.left == 0:
		f.state = inHeader
	default:
		f.state = inPayload
	}
}

func (f *framer) publishID() error {
	if len(f.kept) < 2 {
		return nil
	}
	if binary.BigEndian.Uint16(f.kept) == 0 {
		return violation("the hub sent a PUBLISH with packet id 0") // [MQTT-2.3.1-1]
	}
	if f.left == 0 {
		f.state = inHeader
	} else {
		f.state = inPayload
	}
	return nil
}
