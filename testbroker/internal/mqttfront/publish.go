package mqttfront

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

var errThrottled = errors.New("too many messages wait for their PUBACK")

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
	case k.QoS > 0 && c.version == mqtt.V5 && c.unacked.Add(1) > int32(cmp.Or(o.ReceiveMaximum, 1<<16-1)):
		return &mqtt.Error{Code: mqtt.ReceiveMaximumPassed, Text: "more messages than the receive maximum allows"}
	}
	k.Payload = bytes.Clone(k.Payload)
	return c.front.dialect.published(c, k)
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
	h := c.Hub
	for _, in := range h.Faults.Reached(c.ID) {
		h.Begin(in)
	}
	if c.Mode.Load() != hub.Open {
		return
	}
	if in := h.Faults.Exhausted(c.ID, h.Now()); in != nil {
		h.Happened(in, c.Conn)
		c.end(mqtt.QuotaExceeded, faults.ErrQuota, nil)
		return
	}
	wait, ok := h.Limits.Message()
	if !ok {
		c.flush()
		c.end(mqtt.QuotaExceeded, faults.ErrThrottled, nil)
		return
	}
	if c.Fault(fault.DropBeforePublish) != nil {
		c.CutFor(hub.FaultError(fault.DropBeforePublish))
		return
	}
	if in := c.brokerFault(fault.DisconnectOnPublish); in != nil {
		h.Happened(in, c.Conn)
		c.end(in.Fault.Code, hub.FaultError(fault.DisconnectOnPublish), &in.Fault)
		return
	}
	if m.QoS > 0 && c.version == mqtt.V5 {
		if in := c.Fault(fault.RefusePublish); in != nil {
			c.acknowledge(m.PacketID, time.Time{}, in.Fault.Code, c.reason(in.Fault.Description, ""))
			return
		}
	}
	if m.QoS == 0 || c.Fault(fault.Forget) == nil {
		m.Received = h.Now()
		h.Append(m)
		c.unsaved = true
		h.Faults.Spend(c.ID, m.Received, telemetry.SizeOf(&m))
		h.Changed.Wake()
	}
	if c.Fault(fault.DropAfterPublish) != nil {
		c.CutFor(hub.FaultError(fault.DropAfterPublish))
		return
	}
	h.Garbage(fault.GarbageOnPublish, c.Conn, badPacket)
	if m.QoS > 0 {
		c.answer(&m, wait)
	}
}

// answer sends the PUBACK of a message after a wait, subject to faults.
func (c *client) answer(m *hubdata.Message, wait time.Duration) {
	h := c.Hub
	if c.Fault(fault.SwallowPuback) != nil {
		return
	}
	var due time.Time
	if wait > 0 {
		due = time.Now().Add(wait)
	}
	if in := c.Fault(fault.SlowPuback); in != nil {
		due = time.Now().Add(wait + in.Fault.Delay)
	}
	if in := h.Faults.InForce(fault.Throttle, c.ID); in != nil {
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
	if due.IsZero() && !h.Faults.Any() && c.acks.Idle() {
		c.unacked.Add(-1)
		c.acked = append(c.acked, mqtt.EncodeAck(c.version, mqtt.Puback, mqtt.AckPacket{ID: m.PacketID})...)
		return
	}
	c.acknowledge(m.PacketID, due, mqtt.Success, nil)
}
