package testbroker

import (
	"errors"
	"time"
)

var errThrottled = errors.New("too many messages wait for their PUBACK")

// connectFaults lets faults have their way with a CONNECT. An error ends the connection.
func (f *mqttFront) connectFaults(c *mqttConn, id identity) error {
	h := f.hub
	if in := h.faults.inForce(Absent, id); in != nil {
		h.happened(in, c.conn)
		c.cutFor(faultError(Absent))
		return faultError(Absent)
	}
	if in := h.faults.inForce(HalfOpen, id); in != nil {
		if c.silence() {
			h.happened(in, c.conn)
		}
		c.drain()
		return faultError(HalfOpen)
	}
	if in := h.faults.take(DropConnect, id); in != nil {
		h.happened(in, c.conn)
		c.closeFor(faultError(DropConnect))
		return faultError(DropConnect)
	}
	if in := h.faults.take(NoConnack, id); in != nil {
		c.blame(faultError(NoConnack))
		c.silence()
		h.happened(in, c.conn)
		c.drain()
		return faultError(NoConnack)
	}
	if in := h.faults.take(RefuseConnect, id); in != nil {
		h.happened(in, c.conn)
		return f.refuse(c, in.fault.Code, faultError(RefuseConnect))
	}
	if in := h.faults.inForce(Throttle, id); in != nil {
		h.happened(in, c.conn)
		return f.refuse(c, refusedUnavailable, faultError(Throttle))
	}
	if err := f.ordered(c, id); err != nil {
		return err
	}
	if in := h.faults.exhausted(id, h.now()); in != nil && !in.fault.AcceptConnects {
		h.happened(in, c.conn)
		return f.refuse(c, refusedUnavailable, ErrQuota)
	} else if in != nil {
		c.spent = in
	}
	if in := h.faults.take(SlowConnack, id); in != nil {
		h.happened(in, c.conn)
		if !c.sleep(in.fault.Delay) {
			return faultError(SlowConnack)
		}
	}
	return nil
}

// publish stores a message and answers it, unless a fault has it otherwise.
func (f *mqttFront) publish(c *mqttConn, m Message) {
	h := f.hub
	if f.order(c, m) {
		return
	}
	id := senderOf(&m)
	for _, in := range h.faults.reached(id) {
		h.begin(in)
	}
	if c.mode.Load() != open {
		return
	}
	if in := h.faults.exhausted(id, h.now()); in != nil {
		h.happened(in, c.conn)
		c.closeFor(ErrQuota)
		return
	}
	if in := h.faults.take(DropBeforePublish, id); in != nil {
		h.happened(in, c.conn)
		c.cutFor(faultError(DropBeforePublish))
		return
	}
	var forget *Injected
	if m.QoS > 0 {
		forget = h.faults.take(Forget, id)
	}
	if forget != nil {
		h.happened(forget, c.conn)
	} else {
		m.Received = h.now()
		h.store(m)
		h.faults.spend(id, m.Received, sizeOf(&m))
		h.changed.wake()
	}
	if in := h.faults.take(DropAfterPublish, id); in != nil {
		h.happened(in, c.conn)
		c.cutFor(faultError(DropAfterPublish))
		return
	}
	h.garbage(GarbageOnPublish, c.conn, badPacket)
	if m.QoS > 0 {
		f.answer(c, m)
	}
}

// answer sends the PUBACK of a message, at the time that faults set.
func (f *mqttFront) answer(c *mqttConn, m Message) {
	h := f.hub
	id := senderOf(&m)
	if in := h.faults.take(SwallowPuback, id); in != nil {
		h.happened(in, c.conn)
		return
	}
	var due time.Time
	if in := h.faults.take(DelayPuback, id); in != nil {
		due = time.Now().Add(in.fault.Delay)
		h.happened(in, c.conn)
	}
	if in := h.faults.inForce(Throttle, id); in != nil {
		if c.acks.waiting() >= in.fault.Limit {
			h.happened(in, c.conn)
			c.closeFor(errThrottled)
			return
		}
		if at := h.faults.pace(in); at.After(due) {
			due = at
			h.happened(in, c.conn)
		}
	}
	c.acknowledge(m.PacketID, due)
}
