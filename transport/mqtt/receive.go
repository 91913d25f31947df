package mqtt

import (
	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// received is called by the library for each PUBLISH, in order, on its routing goroutine.
func (s *session) received(_ paho.Client, m paho.Message) {
	if !s.keepEarly(m) {
		s.deliver(m)
	}
}

// deliver passes a message to the dialect.
func (s *session) deliver(m paho.Message) {
	if s.message == nil {
		s.message = new(wire.Inbound)
	}
	id := m.MessageID()
	if m.Qos() == 0 {
		id = 0
	}
	s.topicIn = append(s.topicIn[:0], m.Topic()...)
	d := s.message.Delivery(m.Payload(), id, m.Retained(), m.Duplicate())
	s.dialect.Take(s.cfg.Sink, s.topicIn, d)
	wire.Unasked(s.cfg.Sink, d)
}
