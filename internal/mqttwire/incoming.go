package mqttwire

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

// An Incoming is a received PUBLISH, section 3.3. Topic and Body are parts of the packet. The topic
// may not be valid: brokers pass on what another client sent, so it says nothing about the
// connection, and callers drop the message alone.
type Incoming struct {
	Dup, Retain bool
	QoS         byte
	// ID is 0 with QoS 0.
	ID          uint16
	Topic, Body []byte
	// Properties are those of MQTT 5. With a topic alias among them, Topic may be empty.
	Properties Properties
}

// ReadPublish reads a PUBLISH from its header's flags and its body.
func ReadPublish(flags byte, body []byte) (in Incoming, err error) {
	in, in.Body, err = publishHead(flags, body)
	return in, err
}

// publishHead reads a PUBLISH up to its packet id, and returns the rest of the body.
func publishHead(flags byte, body []byte) (in Incoming, rest []byte, err error) {
	in.Dup, in.QoS, in.Retain = flags&8 != 0, flags>>1&3, flags&1 != 0
	switch {
	case in.QoS == 3:
		return in, nil, ErrQoS
	case in.Dup && in.QoS == 0:
		return in, nil, ErrDup
	}
	n := 0
	if in.Topic, n = field(body); n == 0 {
		return in, nil, ErrShort
	}
	if rest = body[n:]; in.QoS == 0 {
		return in, rest, nil
	}
	if in.ID, err = readID(rest); err != nil {
		return in, nil, err
	}
	return in, rest[2:], nil
}

// ReadID reads the body of a packet that consists of a packet id: PUBACK, section 3.4, and
// UNSUBACK, section 3.11.
func ReadID(body []byte) (uint16, error) {
	id, err := readID(body)
	if err == nil && len(body) > 2 {
		return 0, ErrLong
	}
	return id, err
}

// ReadSuback reads the body of a SUBACK, section 3.9: a return code for each filter. 0 to 2 grant a
// QoS and 0x80 refuses; other codes are not checked.
func ReadSuback(body []byte) (id uint16, codes []byte, err error) {
	if id, err = readID(body); err != nil {
		return 0, nil, err
	}
	if len(body) == 2 {
		return 0, nil, ErrEmpty
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
