package mqttwire

// A Connack5 is a received CONNACK, section 3.2. Session reports that the server kept a session.
type Connack5 struct {
	Session    bool
	Reason     byte
	Properties Properties
}

// ReadConnack5 reads the body of a CONNACK.
func ReadConnack5(body []byte) (c Connack5, err error) {
	switch {
	case len(body) < 3:
		return c, ErrShort
	case body[0] > 1:
		return c, ErrReserved // [MQTT-3.2.2-1]
	}
	c.Session, c.Reason = body[0] == 1, body[1]
	c.Properties, err = last(Connack, body[2:])
	return c, err
}

// last reads a block of properties that ends its packet.
func last(t Type, p []byte) (Properties, error) {
	block, rest, err := properties(t, p)
	if err == nil && len(rest) > 0 {
		err = ErrLong
	}
	return block, err
}

// ReadPublish5 reads a PUBLISH from its header's flags and its body.
func ReadPublish5(flags byte, body []byte) (in Incoming, err error) {
	in, rest, err := publishHead(flags, body)
	if err != nil {
		return in, err
	}
	if in.Properties, in.Body, err = properties(Publish, rest); err != nil {
		return in, err
	}
	if _, ok := in.Properties.Number(TopicAlias); !ok && len(in.Topic) == 0 {
		return in, ErrTopic
	}
	return in, nil
}

// An Ack is a received PUBACK, PUBREC, PUBREL or PUBCOMP, sections 3.4 to 3.7.
type Ack struct {
	ID         uint16
	Reason     byte
	Properties Properties
}

// ReadAck reads the body of a packet of type t that is an Ack.
func ReadAck(t Type, body []byte) (a Ack, err error) {
	if a.ID, err = readID(body); err != nil || len(body) == 2 {
		return a, err
	}
	if a.Reason = body[2]; len(body) > 3 {
		a.Properties, err = last(t, body[3:])
	}
	return a, err
}

// Codes is a received SUBACK or UNSUBACK, sections 3.9 and 3.11, with a reason code for each
// filter.
type Codes struct {
	ID         uint16
	Reasons    []byte
	Properties Properties
}

// ReadCodes reads the body of a packet of type t that is Codes.
func ReadCodes(t Type, body []byte) (c Codes, err error) {
	if c.ID, err = readID(body); err != nil {
		return c, err
	}
	c.Properties, c.Reasons, err = properties(t, body[2:])
	if err == nil && len(c.Reasons) == 0 {
		err = ErrEmpty
	}
	return c, err
}

// A Reason is a received DISCONNECT or AUTH, sections 3.14 and 3.15.
type Reason struct {
	Code       byte
	Properties Properties
}

// ReadReason reads the body of a packet of type t that is a Reason. Only a DISCONNECT may end
// behind its code. A server must not send the session expiry interval.
func ReadReason(t Type, body []byte) (r Reason, err error) {
	if len(body) == 0 {
		return r, nil
	}
	if r.Code = body[0]; t == Disconnect && len(body) == 1 {
		return r, nil
	}
	if r.Properties, err = last(t, body[1:]); err != nil {
		return r, err
	}
	if _, ok := r.Properties.Number(SessionExpiry); ok { // [MQTT-3.14.2-2]
		return r, ErrProperty
	}
	if t == Auth && r.Properties.Text(AuthMethod) == nil { // section 3.15.2.2.2
		return r, ErrMethod
	}
	return r, nil
}
