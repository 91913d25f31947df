package hub

import (
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// ConnectFaults applies the faults of a connect that need no answer of the protocol. An error ends
// the connection.
func (c *Conn) ConnectFaults(id identity.Identity) error {
	if err := c.Unreachable(id); err != nil {
		return err
	}
	return c.Unanswered(id)
}

// Unreachable applies the faults that make the hub unreachable for an identity. An error ends the
// connection.
func (c *Conn) Unreachable(id identity.Identity) error {
	h := c.Hub
	if in := h.Faults.InForce(fault.Absent, id); in != nil {
		h.HappenedTo(in, c, id)
		c.CutFor(FaultError(fault.Absent))
		return FaultError(fault.Absent)
	}
	if in := h.Faults.InForce(fault.HalfOpen, id); in != nil {
		if c.Silence() {
			h.HappenedTo(in, c, id)
		}
		c.Drain()
		return FaultError(fault.HalfOpen)
	}
	return nil
}

// Unanswered applies the faults that leave a connect without an answer. An error ends the
// connection.
func (c *Conn) Unanswered(id identity.Identity) error {
	h := c.Hub
	if in := h.Faults.Take(fault.DropConnect, id); in != nil {
		h.Happened(in, c)
		c.CloseFor(FaultError(fault.DropConnect))
		return FaultError(fault.DropConnect)
	}
	if in := h.Faults.Take(fault.SwallowConnack, id); in != nil {
		c.SetCause(FaultError(fault.SwallowConnack))
		c.Silence()
		h.Happened(in, c)
		c.Drain()
		return FaultError(fault.SwallowConnack)
	}
	return nil
}

// Fault takes a fault of a kind that hits the connection's identity, and reports that it happened;
// nil if there is none.
func (c *Conn) Fault(kind fault.Kind) *Injected {
	in := c.Hub.Faults.Take(kind, c.ID)
	if in != nil {
		c.Hub.Happened(in, c)
	}
	return in
}
