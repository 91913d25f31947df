package mqtt

import (
	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/transport"
)

// maxTopic is the longest topic, in bytes: [MQTT-4.7.3-3].
const maxTopic = 65535

// topics are an identity's own. Ids stand in them as they are, not percent-encoded.
type topics struct {
	telemetry string // to publish, with a bag behind it
	messages  string // the filter for cloud-to-device messages
	inbox     string // what their topics begin with, a bag behind it
}

func newTopics(creds *transport.Credentials) topics {
	base := "devices/" + creds.DeviceID
	if creds.ModuleID != "" {
		base += "/modules/" + creds.ModuleID
	}
	inbox := base + "/messages/devicebound/"
	return topics{telemetry: base + "/messages/events/", messages: inbox + "#", inbox: inbox}
}

// inbound is where a delivery is decoded to; it is used again for the next one.
type inbound struct {
	delivery transport.Delivery
	message  transport.Message
	ref      [2]byte
}

// received is called by the library for each PUBLISH, in order, on its routing goroutine. What is no cloud-to-device message is left alone, unacknowledged: nothing else
// was subscribed to.
func (s *session) received(_ paho.Client, m paho.Message) {
	topic := m.Topic()
	if len(topic) < len(s.topics.inbox) || topic[:len(s.topics.inbox)] != s.topics.inbox {
		return
	}
	in := &s.message
	in.message = transport.Message{Body: m.Payload(), Properties: in.message.Properties[:0]}
	decodeBag(topic[len(s.topics.inbox):], &in.message)
	in.delivery = transport.Delivery{Kind: transport.Messages, Again: m.Duplicate(), Msg: &in.message}
	if m.Qos() > 0 {
		in.ref = [2]byte{byte(m.MessageID() >> 8), byte(m.MessageID())}
		in.delivery.Ref = in.ref[:]
	}
	s.cfg.Sink.Deliver(&in.delivery)
}
