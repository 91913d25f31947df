package testbroker

import (
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
)

// telemetry stores a message or a batch and answers it, unless a fault has it otherwise.
func (a *amqpConn) telemetry(l *amqpLink, d amqp.Delivery) error {
	all, bad := a.readTelemetry(l, d)
	if bad != nil {
		l.settle(d, bad)
		return nil
	}
	h, c, id := a.hub, a.c, l.id
	if len(all) == 1 && a.front.orderAMQP(l, d, all[0]) {
		return nil
	}
	for _, in := range h.faults.reached(id) {
		h.begin(in)
	}
	if c.mode.Load() != open {
		c.drain()
		return net.ErrClosed
	}
	if refusal := a.front.overdrawn(l); refusal != nil {
		l.settle(d, refusal)
		return nil
	}
	if in := h.faults.take(DropBeforePublish, id); in != nil {
		h.happenedTo(in, c, id)
		c.cutFor(faultError(DropBeforePublish))
		return faultError(DropBeforePublish)
	}
	if stop := a.messageFaults(l, d); stop {
		return nil
	}
	if in := h.faults.take(Forget, id); in != nil {
		h.happenedTo(in, c, id)
	} else {
		for _, m := range all {
			m.Received = h.now()
			h.store(m)
			h.faults.spend(id, m.Received, sizeOf(&m))
		}
		h.changed.wake()
	}
	if in := h.faults.take(DropAfterPublish, id); in != nil {
		h.happenedTo(in, c, id)
		c.cutFor(faultError(DropAfterPublish))
		return faultError(DropAfterPublish)
	}
	if in := h.faults.take(DetachAfterMessage, id); in != nil {
		h.happenedTo(in, c, id)
		l.detach(in.fault.wire(), !in.fault.Unclosed)
		return nil
	}
	if in := h.faults.take(GarbageOnPublish, id); in != nil {
		h.happenedTo(in, c, id)
		a.engine.Flush()
		c.Write(garbageOf(&in.fault, shortFrame))
	}
	if !d.Settled {
		a.acknowledge(l, d)
	}
	return nil
}

// overdrawn refuses a message for a quota or a throttle, or because its device asked for that.
func (f *amqpFront) overdrawn(l *amqpLink) *wire.Error {
	h := f.hub
	c, id := l.conn.c, l.id
	if in := h.faults.inForce(Throttle, id); in != nil && l.acks.waiting() >= in.fault.Limit {
		h.happenedTo(in, c, id)
		return throttled()
	}
	if in := h.faults.exhausted(id, h.now()); in != nil {
		h.happenedTo(in, c, id)
		return wire.Errorf(wire.ResourceLimitExceeded, "403002 IotHubQuotaExceeded")
	}
	o, ok := h.stands(id, func(o standingOrder) bool { return o.condition != "" })
	if !ok {
		return nil
	}
	return wire.Errorf(wire.Symbol(o.condition), "%s", o.record.Reason)
}

// acknowledge tells that a message was accepted, at the time that faults set.
func (a *amqpConn) acknowledge(l *amqpLink, d amqp.Delivery) {
	h, c, id := a.hub, a.c, l.id
	if in := h.faults.take(SwallowPuback, id); in != nil {
		h.happenedTo(in, c, id)
		return
	}
	var due time.Time
	if in := h.faults.take(DelayPuback, id); in != nil {
		due = time.Now().Add(in.fault.Delay)
		h.happenedTo(in, c, id)
	}
	if in := h.faults.inForce(Throttle, id); in != nil {
		if at := h.faults.pace(in); at.After(due) {
			due = at
			h.happenedTo(in, c, id)
		}
	}
	say := func() {
		drop := h.faults.take(DropAfterPuback, id) // before a client that has the outcome can declare one
		l.Settle(d.ID, &wire.Accepted{})
		switch {
		case drop == nil:
		case c.mode.Load() != open:
			h.faults.release(drop)
		default:
			h.happenedTo(drop, c, id)
			a.engine.Flush()
			c.farewell(faultError(DropAfterPuback))
		}
	}
	if !l.acks.add(c, due, say) {
		say()
	}
}

// readTelemetry reads a message, or all of a batch.
func (a *amqpConn) readTelemetry(l *amqpLink, d amqp.Delivery) ([]Message, *wire.Error) {
	parts := [][]byte{d.Payload}
	switch d.Format {
	case 0:
	case wire.BatchFormat:
		outer, err := wire.DecodeMessage(d.Payload)
		if err != nil {
			return nil, asWire(err)
		}
		if parts = outer.Data; len(parts) == 0 || len(parts) > maxBatch {
			return nil, wire.Errorf(wire.InvalidField, "batch of %d messages, 1 to %d are allowed", len(parts), maxBatch)
		}
	default:
		return nil, wire.Errorf(wire.NotImplemented, "message format 0x%x", d.Format)
	}
	address, _ := addressOf(l.Link)
	var all []Message
	total := 0
	for _, p := range parts {
		m, err := wire.DecodeMessage(p)
		if err != nil {
			return nil, asWire(err)
		}
		t, err := telemetryOf(m)
		if err != nil {
			return nil, asWire(err)
		}
		if total += sizeOf(&t); total > MaxMessage {
			return nil, wire.Errorf(wire.MessageSizeExceeded, "413001 MessageTooLarge: more than %d bytes", MaxMessage)
		}
		t.DeviceID, t.ModuleID, t.Protocol, t.Topic, t.Connection = l.id.device, l.id.module, AMQP, address, a.c.number
		if !d.Settled {
			t.QoS = 1
		}
		all = append(all, t)
	}
	return all, nil
}

// telemetryOf makes of a message what the log has. System properties get the names that they have
// over MQTT.
func telemetryOf(m *wire.Message) (Message, error) {
	if m.HasValue || len(m.Sequence) > 0 {
		return Message{}, wire.Errorf(wire.NotAllowed, "body that is not data")
	}
	t := Message{Body: m.Body()}
	system := func(name, value string) {
		if value != "" {
			t.System = append(t.System, Property{name, value})
		}
	}
	if p := m.Properties; p != nil {
		t.MessageID, t.CorrelationID = idText(p.MessageID), idText(p.CorrelationID)
		t.ContentType, t.ContentEncoding = string(p.ContentType), string(p.ContentEncoding)
		if p.AbsoluteExpiryTime.OK {
			t.Expiry = time.UnixMilli(int64(p.AbsoluteExpiryTime.V)).UTC().Format(timeLayout)
		}
		system("$.mid", t.MessageID)
		system("$.cid", t.CorrelationID)
		system("$.uid", string(p.UserID))
		system("$.to", p.To.V)
		system("$.ct", t.ContentType)
		system("$.ce", t.ContentEncoding)
		system("$.exp", t.Expiry)
	}
	if len(t.MessageID) > MaxMessageID {
		return t, wire.Errorf(wire.InvalidField, "message id of %d characters, at most %d are allowed", len(t.MessageID),
			MaxMessageID)
	}
	for _, p := range m.MessageAnnotations {
		name, _ := p.Key.(wire.Symbol)
		text, ok := p.Value.(string)
		switch {
		case name == "dt-subject" && !ok:
			return t, wire.Errorf(wire.InvalidField, "annotation dt-subject is a %T, only strings are allowed", p.Value)
		case name == "dt-subject":
			t.Component = text
			system("$.sub", text)
		case ok:
			system(string(name), text)
		}
	}
	for _, p := range m.ApplicationProperties {
		name, _ := p.Key.(string)
		value, ok := p.Value.(string)
		switch {
		case name == "":
			return t, wire.Errorf(wire.InvalidField, "property without a name")
		case !ok:
			return t, wire.Errorf(wire.InvalidField, "property %q is a %T, only strings are allowed", name, p.Value)
		case name == "iothub-creation-time-utc":
			t.CreationTime = value
			system("$.ctime", value)
		default:
			t.Properties = append(t.Properties, Property{name, value})
		}
	}
	return t, nil
}

// idText is a message id as text.
func idText(id any) string {
	switch id := id.(type) {
	case string:
		return id
	case uint64:
		return strconv.FormatUint(id, 10)
	case wire.UUID:
		return id.String()
	case []byte:
		return base64.StdEncoding.EncodeToString(id)
	case nil:
		return ""
	}
	return fmt.Sprint(id)
}
