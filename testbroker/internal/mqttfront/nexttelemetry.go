package mqttfront

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// telemetry takes a message on the topic of telemetry. Some clients send it without a type.
func (n next) telemetry(c *client, k *mqtt.PublishPacket) error {
	if typ := typeOf(k.Properties); typ != "" && typ != nextwire.TypeTelemetry {
		return c.ignore(k, mqtt.Success, errType(typ)) // Decision: acknowledged and not stored
	}
	n.store(c, k)
	return nil
}

func (n next) store(c *client, k *mqtt.PublishPacket) {
	if k.Properties.Number(mqtt.PayloadFormat, 0) == 1 && !utf8.Valid(k.Payload) {
		m := hubdata.Message{QoS: k.QoS, PacketID: k.ID}
		c.reject(&m, mqtt.PayloadFormatInvalid, "payload is not text")
		return
	}
	c.publish(n.messageOf(c, k))
}

// messageOf returns a message as the log holds it. System properties have the names that they have
// in the topics of the classic hub.
func (n next) messageOf(c *client, k *mqtt.PublishPacket) hubdata.Message {
	m := hubdata.Message{
		DeviceID: c.ID.Device, Protocol: hubdata.MQTT, Connection: c.Number, Topic: k.Topic, QoS: k.QoS, PacketID: k.ID,
		Dup: k.Dup, Body: k.Payload, ResponseTopic: k.Properties.Text(mqtt.ResponseTopic),
		Unrouted: !n.profile.routed(k.Topic),
	}
	system := func(name, value string) {
		if value != "" {
			telemetry.AddSystem(&m, name, value)
		}
	}
	for _, p := range k.Properties {
		switch {
		case p.ID == mqtt.ContentType:
			system("$.ct", p.Text)
		case p.ID == mqtt.CorrelationData:
			system("$.cid", p.Text)
		case p.ID == mqtt.PayloadFormat && p.Number == 1:
			system("$.ce", utf8Encoding)
		case p.ID == mqtt.MessageExpiry:
			system("$.exp", c.Hub.Now().Add(time.Duration(p.Number)*time.Second).UTC().Format(time.RFC3339Nano))
		case p.ID != mqtt.UserProperty:
		case strings.HasPrefix(p.Name, "$."):
			telemetry.AddSystem(&m, p.Name, p.Text)
		case p.Name == nextwire.PropertyType && k.Topic == nextwire.Up(c.ID.Device, nextwire.FeatureTelemetry):
		case p.Name == nextwire.PropertyContentType:
			if m.ContentType == "" {
				system("$.ct", p.Text)
			}
		default:
			m.Properties = append(m.Properties, hubdata.Property{Name: p.Name, Value: p.Text})
		}
	}
	return m
}
