package brokerfront

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

var errThrottled = errors.New("too many messages wait for their PUBACK")

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
func messageOf(id hub.Identity, connection uint64, k *mqtt.PublishPacket, now time.Time) hubdata.Message {
	m := hubdata.Message{
		DeviceID: id.Device, ModuleID: id.Module, Protocol: hubdata.MQTT, Connection: connection,
		Topic: k.Topic, QoS: k.QoS, PacketID: k.ID, Dup: k.Dup, Retain: k.Retain, Body: k.Payload,
		CorrelationID: k.Properties.Text(mqtt.CorrelationData), ContentType: k.Properties.Text(mqtt.ContentType),
		ResponseTopic: k.Properties.Text(mqtt.ResponseTopic),
	}
	if k.Properties.Number(mqtt.PayloadFormat, 0) == 1 {
		m.ContentEncoding = utf8Encoding
	}
	if p, ok := k.Properties.Get(mqtt.MessageExpiry); ok {
		m.Expiry = now.Add(time.Duration(p.Number) * time.Second).UTC().Format(time.RFC3339Nano)
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

// handlePublish handles a PUBLISH. An error ends the connection.
func (c *client) handlePublish(first byte, body []byte) error {
	o := c.front.options
	k, err := mqtt.DecodePublish(c.version, first, body)
	if err != nil {
		return err
	}
	if err := c.resolve(k); err != nil {
		return err
	}
	switch {
	case k.QoS > 1, k.QoS > 0 && o.AtMostOnce:
		return &mqtt.Error{Code: mqtt.QoSNotSupported, Text: fmt.Sprintf("publish with QoS %d", k.QoS)}
	case k.Retain && o.NoRetain:
		return &mqtt.Error{Code: mqtt.RetainNotSupported, Text: "publish with RETAIN"}
	case k.QoS > 0 && c.unacked.Add(1) > int32(cmp.Or(o.ReceiveMaximum, 1<<16-1)):
		return &mqtt.Error{Code: mqtt.ReceiveMaximumPassed, Text: "more messages than the receive maximum allows"}
	}
	m := messageOf(c.ID, c.Number, k, c.Hub.Now())
	switch n := hub.SizeOf(&m); {
	case !o.mayPublish(c.ID, k.Topic):
		return c.reject(&m, mqtt.NotAuthorized, fmt.Sprintf("%s may not publish to %q", c.ID, k.Topic))
	case k.Properties.Number(mqtt.PayloadFormat, 0) == 1 && !utf8.Valid(k.Payload):
		return c.reject(&m, mqtt.PayloadFormatInvalid, "payload is not text")
	case n > hubdata.MaxMessage:
		return &mqtt.Error{Code: mqtt.PacketTooLarge, Text: fmt.Sprintf("message of %d bytes, at most %d are allowed", n,
			hubdata.MaxMessage)}
	}
	c.publish(m)
	return nil
}

// resolve replaces a topic alias by its topic, and learns it.
func (c *client) resolve(k *mqtt.PublishPacket) error {
	alias, ok := k.Properties.Get(mqtt.TopicAlias)
	if !ok {
		return nil
	}
	if alias.Number == 0 || alias.Number > uint32(c.front.options.TopicAliases) {
		return &mqtt.Error{Code: mqtt.TopicAliasInvalid, Text: fmt.Sprintf("topic alias %d", alias.Number)}
	}
	if k.Topic != "" {
		if c.aliases == nil {
			c.aliases = make(map[uint32]string)
		}
		c.aliases[alias.Number] = k.Topic
		return nil
	}
	if k.Topic = c.aliases[alias.Number]; k.Topic == "" {
		return &mqtt.Error{Code: mqtt.ProtocolError, Text: fmt.Sprintf("topic alias %d names no topic", alias.Number)}
	}
	return nil
}

// reject refuses a message: by its PUBACK in MQTT 5, by the end of the connection in MQTT 3.1.1,
// which has no other way. A message with QoS 0 is dropped in MQTT 5.
func (c *client) reject(m *hubdata.Message, code byte, why string) error {
	if c.version != mqtt.V5 {
		return &mqtt.Error{Code: code, Text: why}
	}
	if m.QoS > 0 {
		c.acknowledge(m.PacketID, time.Time{}, code, c.reason(why, ""))
	}
	return nil
}

// publish stores a message and answers it, unless a fault intervenes.
func (c *client) publish(m hubdata.Message) {
	h, id := c.Hub, c.ID
	for _, in := range h.Faults.Reached(id) {
		h.Begin(in)
	}
	if c.Mode.Load() != hub.Open {
		return
	}
	if in := h.Faults.Exhausted(id, h.Now()); in != nil {
		h.Happened(in, c.Conn)
		c.end(mqtt.QuotaExceeded, hub.ErrQuota, nil)
		return
	}
	if in := h.Faults.Take(fault.DropBeforePublish, id); in != nil {
		h.Happened(in, c.Conn)
		c.CutFor(hub.FaultError(fault.DropBeforePublish))
		return
	}
	if in := h.Faults.Take(fault.DisconnectOnPublish, id); in != nil {
		h.Happened(in, c.Conn)
		c.end(in.Fault.Code, hub.FaultError(fault.DisconnectOnPublish), &in.Fault)
		return
	}
	if m.QoS > 0 && c.version == mqtt.V5 {
		if in := h.Faults.Take(fault.RefusePublish, id); in != nil {
			h.Happened(in, c.Conn)
			c.acknowledge(m.PacketID, time.Time{}, in.Fault.Code, c.reason(in.Fault.Description, ""))
			return
		}
	}
	var forget *hub.Injected
	if m.QoS > 0 {
		forget = h.Faults.Take(fault.Forget, id)
	}
	if forget != nil {
		h.Happened(forget, c.Conn)
	} else {
		m.Received = h.Now()
		h.Store(m)
		h.Faults.Spend(id, m.Received, hub.SizeOf(&m))
		h.Changed.Wake()
	}
	if in := h.Faults.Take(fault.DropAfterPublish, id); in != nil {
		h.Happened(in, c.Conn)
		c.CutFor(hub.FaultError(fault.DropAfterPublish))
		return
	}
	h.Garbage(fault.GarbageOnPublish, c.Conn, badPacket)
	if m.QoS > 0 {
		c.answer(&m)
	}
}

// answer sends the PUBACK of a stored message, subject to faults.
func (c *client) answer(m *hubdata.Message) {
	h, id := c.Hub, c.ID
	if in := h.Faults.Take(fault.SwallowPuback, id); in != nil {
		h.Happened(in, c.Conn)
		return
	}
	var due time.Time
	if in := h.Faults.Take(fault.SlowPuback, id); in != nil {
		due = time.Now().Add(in.Fault.Delay)
		h.Happened(in, c.Conn)
	}
	if in := h.Faults.InForce(fault.Throttle, id); in != nil {
		if c.acks.Waiting() >= in.Fault.Limit {
			h.Happened(in, c.Conn)
			c.end(mqtt.QuotaExceeded, errThrottled, nil)
			return
		}
		if at := h.Faults.Pace(in); at.After(due) {
			due = at
			h.Happened(in, c.Conn)
		}
	}
	c.acknowledge(m.PacketID, due, mqtt.Success, nil)
}

// acknowledge sends a PUBACK at due. See hub.AckQueue.Add.
func (c *client) acknowledge(id uint16, due time.Time, code byte, all mqtt.Properties) {
	if !c.acks.Add(c.Conn, due, func() { c.puback(id, code, all) }) {
		c.puback(id, code, all)
	}
}

// puback sends a PUBACK, subject to faults. Before it the client's receive maximum has room again.
func (c *client) puback(id uint16, code byte, all mqtt.Properties) {
	if c.Mode.Load() != hub.Open {
		return
	}
	h := c.Hub
	send := func(id uint16) error {
		_, err := c.Write(mqtt.EncodeAck(c.version, mqtt.Puback, mqtt.AckPacket{ID: id, Code: code, Properties: all}))
		return err
	}
	c.unacked.Add(-1)
	if in := h.Faults.Take(fault.StrayPuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		send(wrongID(id))
	}
	if in := h.Faults.Take(fault.DuplicatePuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		send(id)
	}
	// taken before the client has the PUBACK and can declare another fault
	drop := h.Faults.Take(fault.DropAfterPuback, c.ID)
	switch err := send(id); {
	case drop == nil:
	case err != nil || c.Mode.Load() != hub.Open:
		h.Faults.Release(drop)
	default:
		h.Happened(drop, c.Conn)
		c.CloseGracefully(hub.FaultError(fault.DropAfterPuback))
	}
}

// wrongID returns another packet id, far from those that a counting client uses next.
func wrongID(id uint16) uint16 {
	if id == 1<<15 {
		return 1
	}
	return id ^ 1<<15
}
