package mqttfront

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// acknowledge sends a PUBACK at due. See hub.AckQueue.Add.
func (c *client) acknowledge(id uint16, due time.Time) {
	c.flush()
	if !c.acks.Add(c.Conn, due, func() { c.puback(id) }) {
		c.puback(id)
	}
}

// flush sends all PUBACKs, after a wait for the hub's store. Only the connection's goroutine calls
// it.
func (c *client) flush() {
	c.commits.wait()
	if c.unsaved {
		c.unsaved = false
		c.Hub.Saved()
	}
	if len(c.acked) > 0 {
		c.Write(c.acked)
		c.acked = c.acked[:0]
	}
}

func appendPuback(dst []byte, id uint16) []byte {
	return append(dst, packetPuback<<4, 2, byte(id>>8), byte(id))
}

// puback writes the packet directly, because the broker would track it.
func (c *client) puback(id uint16) {
	if c.Mode.Load() != hub.Open {
		return
	}
	send := func(id uint16) error {
		_, err := c.Write(appendPuback(nil, id))
		return err
	}
	if in := c.Hub.Faults.Take(fault.StrayPuback, c.ID); in != nil {
		c.Hub.Happened(in, c.Conn)
		send(wrongID(id))
	}
	if in := c.Hub.Faults.Take(fault.DuplicatePuback, c.ID); in != nil {
		c.Hub.Happened(in, c.Conn)
		send(id)
	}
	// taken before the client has the PUBACK and can declare another fault
	drop := c.Hub.Faults.Take(fault.DropAfterPuback, c.ID)
	switch err := send(id); {
	case drop == nil:
	case err != nil || c.Mode.Load() != hub.Open:
		c.Hub.Faults.Release(drop)
	default:
		c.Hub.Happened(drop, c.Conn)
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
