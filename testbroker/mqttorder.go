package testbroker

import "time"

// order takes a message that asks for a fault and has the fault happen in its time; false when it
// is none.
func (f *mqttFront) order(c *mqttConn, m Message) bool {
	h := f.hub
	return h.take(m, func(kind orderKind) {
		if m.QoS > 0 && (h.obedient == ObeyFaultMessages || kind.on&MQTT == 0) {
			c.acknowledge(m.PacketID, time.Time{})
		}
	}, f.obey)
}

// obey does what a device asked for.
func (f *mqttFront) obey(kind orderKind, asked *FaultMessage) {
	h := f.hub
	id := identity{asked.DeviceID, asked.ModuleID}
	h.mu.Lock()
	c := f.current[id]
	stands := kind.refuses && asked.Duration > 0
	if stands {
		h.standing[id] = standingOrder{orderKind: kind, until: time.Now().Add(asked.Duration), record: asked}
	}
	asked.Happened = c != nil || stands
	happened := asked.Happened
	h.mu.Unlock()
	cause := orderError{asked.Type, asked.Reason}
	if happened {
		on := (*conn)(nil)
		if c != nil {
			on = c.conn
		}
		h.event(Event{Kind: FaultObeyed, DeviceID: id.device, ModuleID: id.module, Err: cause}, on)
	}
	switch {
	case c == nil:
	case kind.cut:
		c.cutFor(cause)
	default:
		c.farewell(cause)
	}
	h.changed.wake()
}

// ordered refuses a CONNECT because its device asked for that. An error ends the connection.
func (f *mqttFront) ordered(c *mqttConn, id identity) error {
	h := f.hub
	o, ok := h.stands(id, func(o standingOrder) bool { return !o.once })
	if !ok {
		return nil
	}
	cause := orderError{o.name, o.record.Reason}
	if o.cut {
		c.cutFor(cause)
		return cause
	}
	return f.refuse(c, o.code, cause)
}
