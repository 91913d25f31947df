package testbroker

import "time"

// An ack is a PUBACK that waits.
type ack struct {
	id  uint16
	due time.Time
}

// acknowledge sends a PUBACK when it is due, the zero time meaning at once, but never before an earlier one. Only the
// connection's goroutine calls it.
func (c *conn) acknowledge(id uint16, due time.Time) {
	c.mu.Lock()
	if due.IsZero() && !c.acker {
		c.mu.Unlock()
		c.puback(id)
		return
	}
	c.acks = append(c.acks, ack{id, due})
	start := !c.acker
	c.acker = true
	c.mu.Unlock()
	if start {
		c.hub.wg.Go(c.sendAcks)
	}
}

// waiting returns how many PUBACKs are held back.
func (c *conn) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acks)
}

// sendAcks is a goroutine that exists while PUBACKs are held back. It ends when there are none, or with the
// connection; the hub's Close waits for it.
func (c *conn) sendAcks() {
	for {
		c.mu.Lock()
		if len(c.acks) == 0 {
			c.acker = false
			c.mu.Unlock()
			return
		}
		head := c.acks[0]
		c.mu.Unlock()
		if !c.sleep(time.Until(head.due)) {
			return
		}
		c.puback(head.id)
		c.mu.Lock()
		c.acks = c.acks[1:]
		c.mu.Unlock()
	}
}

// puback writes the packet, past the broker, which would keep books about it.
func (c *conn) puback(id uint16) {
	if c.mode.Load() != open {
		return
	}
	send := func(id uint16) error {
		_, err := c.Write([]byte{packetPuback << 4, 2, byte(id >> 8), byte(id)})
		return err
	}
	if in := c.hub.faults.take(StrayPuback, c.id); in != nil {
		c.hub.happened(in, c)
		send(stray(id))
	}
	if in := c.hub.faults.take(DuplicatePuback, c.id); in != nil {
		c.hub.happened(in, c)
		send(id)
	}
	drop := c.hub.faults.take(DropAfterPuback, c.id) // before a client that has the PUBACK can declare one
	switch err := send(id); {
	case drop == nil:
	case err != nil || c.mode.Load() != open:
		c.hub.faults.release(drop)
	default:
		c.hub.happened(drop, c)
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

// sleep waits; false when the connection ended meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	if d <= 0 {
		return c.mode.Load() != over
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}
