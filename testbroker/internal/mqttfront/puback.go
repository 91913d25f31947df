package mqttfront

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// acknowledge sends a PUBACK at due. See hub.AckQueue.Add.
func (c *client) acknowledge(id uint16, due time.Time, code byte, all mqtt.Properties) {
	c.flush()
	if !c.acks.Add(c.Conn, due, func() { c.puback(id, code, all) }) {
		c.puback(id, code, all)
	}
}

// flush sends all PUBACKs, after a wait for the hub's store. Only the connection's goroutine calls
// it.
func (c *client) flush() {
	c.commits.wait()
	if c.unsaved {
		c.unsaved = false
		c.Hub.Records.Saved()
	}
	if len(c.acked) > 0 {
		c.Write(c.acked)
		c.acked = c.acked[:0]
	}
}

// puback sends a PUBACK, subject to faults. Before it the client's receive maximum has room again.
func (c *client) puback(id uint16, code byte, all mqtt.Properties) {
	if c.Mode.Load() != hub.Open {
		return
	}
	send := func(id uint16) error {
		_, err := c.Write(mqtt.EncodeAck(c.version, mqtt.Puback, mqtt.AckPacket{ID: id, Code: code, Properties: all}))
		return err
	}
	c.unacked.Add(-1)
	if c.Fault(fault.StrayPuback) != nil {
		send(wrongID(id))
	}
	if c.Fault(fault.DuplicatePuback) != nil {
		send(id)
	}
	h := c.Hub
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
