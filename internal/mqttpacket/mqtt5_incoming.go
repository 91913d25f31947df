package mqtt5

import (
	"encoding/binary"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
)

// A Connack is a received CONNACK, section 3.2. Session reports that the server kept a session.
type Connack struct {
	Session    bool
	Reason     byte
	Properties Properties
}

// ReadConnack reads the body of a CONNACK.
func ReadConnack(body []byte) (c Connack, err error) {
	switch {
	case len(body) < 3:
		return c, mqttpacket.ErrShort
	case body[0] > 1:
		return c, mqttpacket.ErrReserved // [MQTT-3.2.2-1]
	}
	c.Session, c.Reason = body[0] == 1, body[1]
	c.Properties, err = last(mqttpacket.Connack, body[2:])
	return c, err
}

// last reads a block of properties that ends its packet.
func last(t mqttpacket.Type, p []byte) (Properties, error) {
	block, rest, err := properties(t, p)
	if err == nil && len(rest) > 0 {
		err = mqttpacket.ErrLong
	}
	return block, err
}

// An Incoming is a received PUBLISH, section 3.3. Topic may be empty if the Properties have a topic
// alias.
type Incoming struct {
	mqttpacket.Incoming
	Properties Properties
}

// ReadPublish reads a PUBLISH from its header's flags and its body.
func ReadPublish(flags byte, body []byte) (in Incoming, err error) {
	in.Dup, in.QoS, in.Retain = flags&8 != 0, flags>>1&3, flags&1 != 0
	switch {
	case in.QoS == 3:
		return in, mqttpacket.ErrQoS // [MQTT-3.3.1-4]
	case in.Dup && in.QoS == 0:
		return in, mqttpacket.ErrDup // [MQTT-3.3.1-2]
	}
	n := 0
	if in.Topic, n = field(body); n == 0 {
		return in, mqttpacket.ErrShort
	}
	rest := body[n:]
	if in.QoS > 0 {
		if len(rest) < 2 {
			return in, mqttpacket.ErrShort
		}
		in.ID, rest = binary.BigEndian.Uint16(rest), rest[2:]
		if in.ID == 0 {
			return in, mqttpacket.ErrID // [MQTT-2.2.1-3]
		}
	}
	if in.Properties, in.Body, err = properties(mqttpacket.Publish, rest); err != nil {
		return in, err
	}
	if len(in.Topic) == 0 {
		if _, ok := in.Properties.Number(TopicAlias); !ok {
			return in, mqttpacket.ErrTopic
		}
	} else if !mqttpacket.ValidTopic(in.Topic) {
		return in, mqttpacket.ErrTopic
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
func ReadAck(t mqttpacket.Type, body []byte) (a Ack, err error) {
	if a.ID, err = readID(body); err != nil || len(body) == 2 {
		return a, err
	}
	if a.Reason = body[2]; len(body) > 3 {
		a.Properties, err = last(t, body[3:])
	}
	return a, err
}

// readID reads the packet id at the beginning of a body.
func readID(body []byte) (id uint16, err error) {
	if len(body) < 2 {
		return 0, mqttpacket.ErrShort
	}
	if id = binary.BigEndian.Uint16(body); id == 0 {
		return 0, mqttpacket.ErrID
	}
	return id, nil
}

// Codes is a received SUBACK or UNSUBACK, sections 3.9 and 3.11, with a reason code for each
// filter.
type Codes struct {
	ID         uint16
	Reasons    []byte
	Properties Properties
}

// ReadCodes reads the body of a packet of type t that is Codes.
func ReadCodes(t mqttpacket.Type, body []byte) (c Codes, err error) {
	if c.ID, err = readID(body); err != nil {
		return c, err
	}
	c.Properties, c.Reasons, err = properties(t, body[2:])
	if err == nil && len(c.Reasons) == 0 {
		err = mqttpacket.ErrEmpty
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
func ReadReason(t mqttpacket.Type, body []byte) (r Reason, err error) {
	if len(body) == 0 {
		return r, nil
	}
	if r.Code = body[0]; t == mqttpacket.Disconnect && len(body) == 1 {
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
