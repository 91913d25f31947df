package mqttpacket

import "encoding/binary"

// ReadConnack reads the body of a CONNACK, section 3.2. session reports that the server kept a
// session; code is the return code, 0 for accepted.
func ReadConnack(body []byte) (session bool, code byte, err error) {
	switch {
	case len(body) < 2:
		return false, 0, ErrShort
	case len(body) > 2:
		return false, 0, ErrLong
	case body[0] > 1:
		return false, 0, ErrReserved
	}
	return body[0] == 1, body[1], nil
}

// An Incoming is a received PUBLISH, section 3.3. Topic and Body are parts of the packet.
type Incoming struct {
	Dup, Retain bool
	QoS         byte
	// ID is 0 with QoS 0.
	ID          uint16
	Topic, Body []byte
}

// ReadPublish reads a PUBLISH from its header's flags and its body.
func ReadPublish(flags byte, body []byte) (in Incoming, err error) {
	in.Dup, in.QoS, in.Retain = flags&8 != 0, flags>>1&3, flags&1 != 0
	switch {
	case in.QoS == 3:
		return in, ErrQoS
	case in.Dup && in.QoS == 0:
		return in, ErrDup
	case len(body) < 2:
		return in, ErrShort
	}
	n := int(binary.BigEndian.Uint16(body))
	rest := body[2:]
	if n > len(rest) {
		return in, ErrShort
	}
	in.Topic, rest = rest[:n:n], rest[n:]
	if in.QoS > 0 {
		if len(rest) < 2 {
			return in, ErrShort
		}
		in.ID, rest = binary.BigEndian.Uint16(rest), rest[2:]
		if in.ID == 0 {
			return in, ErrID
		}
	}
	if !ValidTopic(in.Topic) {
		return in, ErrTopic
	}
	in.Body = rest
	return in, nil
}

// ReadID reads the body of a packet that consists of a packet id: PUBACK, section 3.4, and
// UNSUBACK, section 3.11.
func ReadID(body []byte) (uint16, error) {
	switch {
	case len(body) < 2:
		return 0, ErrShort
	case len(body) > 2:
		return 0, ErrLong
	}
	id := binary.BigEndian.Uint16(body)
	if id == 0 {
		return 0, ErrID
	}
	return id, nil
}

// ReadSuback reads the body of a SUBACK, section 3.9: a return code for each filter. 0 to 2 grant a
// QoS and 0x80 refuses; other codes are not checked.
func ReadSuback(body []byte) (id uint16, codes []byte, err error) {
	switch {
	case len(body) < 2:
		return 0, nil, ErrShort
	case len(body) == 2:
		return 0, nil, ErrEmpty
	}
	id = binary.BigEndian.Uint16(body)
	if id == 0 {
		return 0, nil, ErrID
	}
	return id, body[2:], nil
}

// ReadEmpty reads the body of a packet without one: PINGRESP, section 3.13.
func ReadEmpty(body []byte) error {
	if len(body) > 0 {
		return ErrLong
	}
	return nil
}
