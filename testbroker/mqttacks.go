package testbroker

import "time"

// acknowledge sends a PUBACK when it is due. See ackQueue.add.
func (c *mqttConn) acknowledge(id uint16, due time.Time) {
	if !c.acks.add(c.conn, due, func() { c.puback(id) }) {
		c.puback(id)
	}
}

// puback writes the packet, past the broker, which would keep books about it.
func (c *mqttConn) puback(id uint16) {
	if c.mode.Load() != open {
		return
	}
	send := func(id uint16) error {
		_, err := c.Write([]byte{packetPuback << 4, 2, byte(id >> 8), byte(id)})
		return err
	}
	if in := c.hub.faults.take(StrayPuback, c.id); in != nil {
		c.hub.happened(in, c.conn)
		send(stray(id))
	}
	if in := c.hub.faults.take(DuplicatePuback, c.id); in != nil {
		c.hub.happened(in, c.conn)
		send(id)
	}
	drop := c.hub.faults.take(DropAfterPuback, c.id) // before a client that has the PUBACK can declare one
	switch err := send(id); {
	case drop == nil:
	case err != nil || c.mode.Load() != open:
		c.hub.faults.release(drop)
	default:
		c.hub.happened(drop, c.conn)
		c.farewell(faultError(DropAfterPuback))
	}
}

// stray returns another packet id, one that a client that counts is not about to use.
func stray(id uint16) uint16 {
	if id == 1<<15 {
		return 1
	}
	return id ^ 1<<15
}
