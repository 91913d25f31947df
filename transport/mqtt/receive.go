package mqtt

import (
	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// received is called by the library for each PUBLISH, in order, on its routing goroutine. Messages
// on topics without a subscription are ignored and not acknowledged.
func (s *session) received(_ paho.Client, m paho.Message) {
	topic := m.Topic()
	if s.dialect != nil {
		s.dialect.Deliver(topic, m.Payload())
		if id := m.MessageID(); m.Qos() == 1 && s.conn.waitForSpace(s.disconnecting) > 0 {
			_, _ = s.conn.Write([]byte{typePuback << 4, 2, byte(id >> 8), byte(id)})
		}
		return
	}
	if s.message == nil {
		s.message = new(wire.Inbound)
	}
	id := m.MessageID()
	if m.Qos() == 0 {
		id = 0
	}
	if wire.FromHub(topic) {
		if !s.message.TakeCertificate(s.cfg.Sink, topic, m.Payload(), id, m.Duplicate()) {
			s.message.Take(s.cfg.Sink, topic, m.Payload())
		}
		return
	}
	if len(topic) < len(s.topics.Inbox) || topic[:len(s.topics.Inbox)] != s.topics.Inbox {
		return
	}
	s.cfg.Sink.Deliver(s.message.Decode(topic[len(s.topics.Inbox):], m.Payload(), id, m.Duplicate()))
}
