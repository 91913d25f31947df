package mqtt

import (
	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// received is called by the library for each PUBLISH, in order, on its routing goroutine. What is no cloud-to-device message is left alone, unacknowledged: nothing else
// was subscribed to.
func (s *session) received(_ paho.Client, m paho.Message) {
	topic := m.Topic()
	if len(topic) < len(s.topics.Inbox) || topic[:len(s.topics.Inbox)] != s.topics.Inbox {
		return
	}
	id := m.MessageID()
	if m.Qos() == 0 {
		id = 0
	}
	if s.message == nil {
		s.message = new(wire.Inbound)
	}
	s.cfg.Sink.Deliver(s.message.Decode(topic[len(s.topics.Inbox):], m.Payload(), id, m.Duplicate()))
}
