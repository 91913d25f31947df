package engine

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// maxSubackCodes is the most return codes in a SUBACK that the session reads: one more than it ever
// expects.
const maxSubackCodes = dialect.MaxFilters + 1

// handle processes one packet. Some hubs send DISCONNECT before they close, though 3.1.1 allows it
// to clients only.
func (s *session) handle(h mqttwire.Header, body []byte) error {
	if v := s.t.newer; v != nil {
		return v.handle(s, h, body)
	}
	switch h.Type {
	case mqttwire.Puback:
		id, err := mqttwire.ReadID(body)
		if err != nil {
			return mqttwire.Violation{Err: err}
		}
		return s.puback(id)
	case mqttwire.Publish:
		return s.backlog.Incoming(h.Flags, body)
	case mqttwire.Suback:
		id, codes, err := mqttwire.ReadSuback(body)
		if err != nil {
			return mqttwire.Violation{Err: err}
		}
		return s.suback(id, codes)
	case mqttwire.Pingresp, mqttwire.Disconnect:
		if err := mqttwire.ReadEmpty(body); err != nil {
			return mqttwire.Violation{Err: err}
		}
		return nil
	case mqttwire.Connack:
		return mqttwire.NewViolation("the hub sent a second CONNACK") // [MQTT-3.2.0-1]
	case mqttwire.Connect, mqttwire.Subscribe, mqttwire.Unsubscribe, mqttwire.Unsuback, mqttwire.Pingreq,
		mqttwire.Pubrec, mqttwire.Pubrel, mqttwire.Pubcomp, mqttwire.Auth:
	}
	return mqttwire.NewViolation("the hub sent a packet of type " + strconv.Itoa(int(h.Type)) +
		", which is not for clients")
}

// delivery returns the delivery of a PUBLISH, in the Transport's memory, which is allocated once.
func (s *session) delivery(in *mqttwire.Incoming) *transport.Delivery {
	if s.t.message == nil {
		s.t.message = new(mqttwire.Inbound)
	}
	return s.t.message.Delivery(in.Body, in.ID, in.Retain, in.Dup)
}

// passMessage passes a PUBLISH to the dialect. It is mqttwire.Backlog.Pass.
func (s *session) passMessage(to *mqttwire.Tap, flags byte, body []byte, fresh bool, waited time.Duration) error {
	if v := s.t.newer; v != nil {
		return v.pass(s, to, flags, body, fresh, waited)
	}
	in, err := readPublish(flags, body)
	if err != nil {
		return err
	}
	size := mqttwire.MissedSize(flags, in.Body)
	if size > 0 {
		in.Body = nil
	}
	d := s.delivery(&in)
	switch valid := mqttwire.ValidTopic(in.Topic); {
	case valid && size > 0:
		limit := s.t.opt.ReadBuffer
		if limit == 0 {
			limit = maxIncoming
		}
		s.dialect.Missed(to, in.Topic, d, size, limit)
		return nil
	case valid:
		s.dialect.Take(to, in.Topic, d)
	}
	mqttwire.Unasked(to, in.Topic, d)
	return nil
}

// readPublish reads a PUBLISH of MQTT 3.1.1.
func readPublish(flags byte, body []byte) (mqttwire.Incoming, error) {
	in, err := mqttwire.ReadPublish(flags, body)
	switch {
	case err != nil:
		err = mqttwire.Violation{Err: err}
	case in.QoS > 1:
		err = mqttwire.NewViolation("the hub sent a PUBLISH with a QoS above 1, which was not requested")
	}
	return in, err
}
