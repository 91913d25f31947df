package mqttfront

import (
	"cmp"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// Names of the user properties that carry fields of a message for which MQTT 5 has no property.
const (
	propertyMessageID = "message-id"
	propertyCreated   = "creation-time"
	propertyEncoding  = "content-encoding"
	propertyComponent = "dt-subject"
)

// utf8Encoding is the content encoding that MQTT 5 has as its payload format 1.
const utf8Encoding = "utf-8"

// messageOf returns a message or a will as the log holds it.
func messageOf(c *client, k *mqtt.PublishPacket) hubdata.Message {
	m := hubdata.Message{
		DeviceID: c.ID.Device, ModuleID: c.ID.Module, Protocol: hubdata.MQTT, Connection: c.Number,
		Topic: k.Topic, QoS: k.QoS, PacketID: k.ID, Dup: k.Dup, Retain: k.Retain, Body: k.Payload,
		CorrelationID: k.Properties.Text(mqtt.CorrelationData), ContentType: k.Properties.Text(mqtt.ContentType),
		ResponseTopic: k.Properties.Text(mqtt.ResponseTopic),
	}
	if k.Properties.Number(mqtt.PayloadFormat, 0) == 1 {
		m.ContentEncoding = utf8Encoding
	}
	if p, ok := k.Properties.Get(mqtt.MessageExpiry); ok {
		m.Expiry = c.Hub.Now().Add(time.Duration(p.Number) * time.Second).UTC().Format(time.RFC3339Nano)
	}
	fields := map[string]*string{
		propertyMessageID: &m.MessageID, propertyCreated: &m.CreationTime, propertyEncoding: &m.ContentEncoding,
		propertyComponent: &m.Component,
	}
	for i, p := range named(k.Properties) {
		field := fields[p.Name]
		switch {
		case k.Properties[i].ID != mqtt.UserProperty:
			m.System = append(m.System, p)
		case field != nil:
			*field = p.Value
			m.System = append(m.System, p)
		default:
			m.Properties = append(m.Properties, p)
		}
	}
	return m
}

// named returns properties by their names: user properties by their own, others by those of the
// standard.
func named(ps mqtt.Properties) (all []hubdata.Property) {
	for _, p := range ps {
		n := hubdata.Property{Name: cmp.Or(p.Name, p.PropertyName()), Value: p.Text}
		switch {
		case p.ID == mqtt.UserProperty:
			n.Name = p.Name
		case p.ID == mqtt.AuthData:
			n.Value = "" // a secret
		case p.IsNumber():
			n.Value = strconv.FormatUint(uint64(p.Number), 10)
		}
		all = append(all, n)
	}
	return all
}

func propertiesOf(e *hub.QueuedC2D, now time.Time) (all mqtt.Properties) {
	m := &e.C2D
	add := func(id byte, name, value string) {
		if value != "" {
			all = append(all, mqtt.Property{ID: id, Name: name, Text: value})
		}
	}
	if m.ContentEncoding == utf8Encoding {
		all = append(all, mqtt.Property{ID: mqtt.PayloadFormat, Number: 1})
	}
	if e.Expires {
		all = append(all, mqtt.Property{ID: mqtt.MessageExpiry, Number: uint32(max(1, hub.Seconds(m.Expiry.Sub(now))))})
	}
	add(mqtt.ContentType, "", m.ContentType)
	add(mqtt.ResponseTopic, "", m.ResponseTopic)
	add(mqtt.CorrelationData, "", m.CorrelationID)
	add(mqtt.UserProperty, propertyMessageID, m.MessageID)
	if m.ContentEncoding != utf8Encoding {
		add(mqtt.UserProperty, propertyEncoding, m.ContentEncoding)
	}
	for _, p := range m.Properties {
		all = append(all, mqtt.Property{ID: mqtt.UserProperty, Name: p.Name, Text: p.Value})
	}
	return all
}
