package engine

import (
	"strconv"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// maxSubackCodes is the most return codes in a SUBACK that the session reads: one more than it ever
// expects.
const maxSubackCodes = dialect.MaxFilters + 1

// handle processes one packet. Some hubs send DISCONNECT before they close, though 3.1.1 allows it
// to clients only.
func (s *session) handle(h mqttpacket.Header, body []byte) error {
	if v := s.t.newer(); v != nil {
		return v.handle(s, h, body)
	}
	switch h.Type {
	case mqttpacket.Puback:
		id, err := mqttpacket.ReadID(body)
		if err != nil {
			return wire.Violation{Err: err}
		}
		return s.puback(id)
	case mqttpacket.Publish:
		return s.backlog.Incoming(h.Flags, body)
	case mqttpacket.Suback:
		id, codes, err := mqttpacket.ReadSuback(body)
		if err != nil {
			return wire.Violation{Err: err}
		}
		return s.suback(id, codes)
	case mqttpacket.Pingresp, mqttpacket.Disconnect:
		if err := mqttpacket.ReadEmpty(body); err != nil {
			return wire.Violation{Err: err}
		}
		return nil
	case mqttpacket.Connack:
		return wire.NewViolation("the hub sent a second CONNACK") // [MQTT-3.2.0-1]
	case mqttpacket.Connect, mqttpacket.Subscribe, mqttpacket.Unsubscribe, mqttpacket.Unsuback, mqttpacket.Pingreq,
		mqttpacket.Pubrec, mqttpacket.Pubrel, mqttpacket.Pubcomp, mqttpacket.Auth:
	}
	return wire.NewViolation("the hub sent a packet of type " + strconv.Itoa(int(h.Type)) + ", which is not for clients")
}

// missed reports a PUBLISH of size bytes that does not fit into the read buffer. body is the
// beginning of the packet's body.
func (s *session) missed(h mqttpacket.Header, body []byte, size int) {
	if in, err := mqttpacket.ReadPublish(h.Flags, body); err == nil {
		in.Body = nil
		s.backlog.Passing.Lock()
		defer s.backlog.Passing.Unlock()
		s.dialect.Missed(s.sink, in.Topic, s.delivery(&in), size, s.t.opt.ReadBuffer)
	}
}

// delivery returns the delivery of a PUBLISH, in the Transport's memory, which is allocated once.
func (s *session) delivery(in *mqttpacket.Incoming) *transport.Delivery {
	if s.t.message == nil {
		s.t.message = new(wire.Inbound)
	}
	return s.t.message.Delivery(in.Body, in.ID, in.Retain, in.Dup)
}

// passMessage passes a PUBLISH to the dialect. It is wire.Backlog.Pass.
func (s *session) passMessage(to *wire.Tap, flags byte, body []byte, fresh bool) error {
	if v := s.t.newer(); v != nil {
		return v.pass(s, to, flags, body, fresh)
	}
	in, err := mqttpacket.ReadPublish(flags, body)
	switch {
	case err != nil:
		return wire.Violation{Err: err}
	case in.QoS > 1:
		return wire.NewViolation("the hub sent a PUBLISH with a QoS above 1, which was not requested")
	}
	d := s.delivery(&in)
	s.dialect.Take(to, in.Topic, d)
	wire.Unasked(to, d)
	return nil
}
