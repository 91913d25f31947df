package mqttfront

import (
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

var errThrottled = errors.New("too many messages wait for their PUBACK")

// connectFaults applies the faults of a CONNECT. An error ends the connection.
func (f *Front) connectFaults(c *client, id hub.Identity) error {
	h := f.hub
	if err := c.ConnectFaults(id); err != nil {
		return err
	}
	if wait, ok := h.Limits.Connect(); !ok {
		return f.refuse(c, refusedUnavailable, hub.ErrThrottled)
	} else if !c.Sleep(wait) {
		return hub.ErrThrottled
	}
	if in := h.Faults.Take(fault.RefuseConnect, id); in != nil {
		h.Happened(in, c.Conn)
		return f.refuse(c, in.Fault.Code, hub.FaultError(fault.RefuseConnect))
	}
	if in := h.Faults.InForce(fault.Throttle, id); in != nil {
		h.Happened(in, c.Conn)
		return f.refuse(c, refusedUnavailable, hub.FaultError(fault.Throttle))
	}
	if err := f.ordered(c, id); err != nil {
		return err
	}
	if in := h.Faults.Exhausted(id, h.Now()); in != nil && !in.Fault.AcceptConnects {
		h.Happened(in, c.Conn)
		return f.refuse(c, refusedUnavailable, hub.ErrQuota)
	} else if in != nil {
		c.spent = in
	}
	if in := h.Faults.Take(fault.SlowConnack, id); in != nil {
		h.Happened(in, c.Conn)
		if !c.Sleep(in.Fault.Delay) {
			return hub.FaultError(fault.SlowConnack)
		}
	}
	return nil
}

// inspect makes a message of a PUBLISH.
func (f *Front) inspect(c *client, pk *mqtt.PublishPacket) (hubdata.Message, error) {
	m, err := parseTelemetry(c.ID, pk.Topic)
	if err != nil {
		return hubdata.Message{}, err
	}
	m.Protocol = hubdata.MQTT
	m.Body, m.QoS, m.PacketID, m.Dup, m.Connection = pk.Payload, pk.QoS, pk.ID, pk.Dup, c.Number
	if n := hub.SizeOf(&m); n > hubdata.MaxMessage {
		return hubdata.Message{}, fmt.Errorf("message of %d bytes, at most %d are allowed", n, hubdata.MaxMessage)
	}
	if pk.Retain {
		m.Properties = append(m.Properties, hubdata.Property{Name: "mqtt-retain", Value: "true"})
	}
	return m, nil
}

// publish stores a message and answers it, unless a fault intervenes.
func (f *Front) publish(c *client, m hubdata.Message) {
	h := f.hub
	if f.order(c, m) {
		return
	}
	id := hub.SenderOf(&m)
	for _, in := range h.Faults.Reached(id) {
		h.Begin(in)
	}
	if c.Mode.Load() != hub.Open {
		return
	}
	if in := h.Faults.Exhausted(id, h.Now()); in != nil {
		h.Happened(in, c.Conn)
		c.CloseFor(hub.ErrQuota)
		return
	}
	wait, ok := h.Limits.Message()
	if !ok {
		c.flush()
		c.CloseFor(hub.ErrThrottled)
		return
	}
	if in := h.Faults.Take(fault.DropBeforePublish, id); in != nil {
		h.Happened(in, c.Conn)
		c.CutFor(hub.FaultError(fault.DropBeforePublish))
		return
	}
	var forget *hub.Injected
	if m.QoS > 0 {
		forget = h.Faults.Take(fault.Forget, id)
	}
	if forget != nil {
		h.Happened(forget, c.Conn)
	} else {
		m.Received = h.Now()
		h.Append(m)
		c.unsaved = true
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
		f.answer(c, m, wait)
	}
}

// answer sends the PUBACK of a message after a wait, subject to faults.
func (f *Front) answer(c *client, m hubdata.Message, wait time.Duration) {
	h := f.hub
	id := hub.SenderOf(&m)
	if in := h.Faults.Take(fault.SwallowPuback, id); in != nil {
		h.Happened(in, c.Conn)
		return
	}
	var due time.Time
	if wait > 0 {
		due = time.Now().Add(wait)
	}
	if in := h.Faults.Take(fault.SlowPuback, id); in != nil {
		due = time.Now().Add(wait + in.Fault.Delay)
		h.Happened(in, c.Conn)
	}
	if in := h.Faults.InForce(fault.Throttle, id); in != nil {
		if c.acks.Waiting() >= in.Fault.Limit {
			h.Happened(in, c.Conn)
			c.CloseFor(errThrottled)
			return
		}
		if at := h.Faults.Pace(in); at.After(due) {
			due = at
			h.Happened(in, c.Conn)
		}
	}
	if due.IsZero() && !h.Faults.Any() && c.acks.Idle() {
		c.acked = appendPuback(c.acked, m.PacketID)
		return
	}
	c.acknowledge(m.PacketID, due)
}
