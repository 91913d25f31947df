package paho

import (
	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// received is called by paho for each PUBLISH, in order, on its routing goroutine.
func (s *session) received(_ paho.Client, m paho.Message) {
	o := mqttpacket.Outgoing{QoS: m.Qos(), Dup: m.Duplicate(), Retain: m.Retained(), Topic: len(m.Topic()),
		Body: len(m.Payload())}
	s.in = append(mqttpacket.AppendPublish(s.in[:0], &o), m.Topic()...)
	if o.QoS > 0 {
		s.in = mqttpacket.AppendID(s.in, m.MessageID())
	}
	s.in = append(s.in, m.Payload()...)
	h, _, _ := mqttpacket.Next(s.in)
	if err := s.backlog.Incoming(h.Flags, s.in[h.Size:]); err != nil {
		s.leave(err)
	}
	if cap(s.in) > keptPacket {
		s.in = nil
	}
}

// pass passes a PUBLISH to the dialect. It is wire.Backlog.Pass.
func (s *session) pass(to *wire.Tap, flags byte, body []byte, _ bool) error {
	in, err := mqttpacket.ReadPublish(flags, body)
	if err != nil {
		return err
	}
	d := s.message.Delivery(in.Body, in.ID, in.Retain, in.Dup)
	s.dialect.Take(to, in.Topic, d)
	wire.Unasked(to, d)
	return nil
}

// room says that there may be room for a message. It ends a session that brings no further ones.
func (s *session) room() {
	s.backlog.Redeliver()
	if s.backlog.Over() {
		s.leave(wire.ErrBehind)
	}
}

// leave ends the session with a DISCONNECT, else the peer would publish the will.
func (s *session) leave(err error) {
	_, _ = s.guard.Write(mqttpacket.AppendDisconnect(nil))
	s.guard.fail(err)
}
