package hub

import (
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
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
		return c.CutBy(fault.Absent)
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
	if h.Strike(fault.DropConnect, id, c, nil) != nil {
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
func (c *Conn) Fault(kind fault.Kind) *faults.Injected { return c.Hub.Strike(kind, c.ID, c, nil) }

// Strike takes a fault of a kind that hits an event of an identity, and reports that it happened;
// nil if there is none. only, unless nil, selects the faults; the connection may be nil.
func (h *Hub) Strike(kind fault.Kind, id identity.Identity, c *Conn, only func(*fault.Fault) bool) *faults.Injected {
	in := h.Faults.TakeIf(kind, id, only)
	if in != nil {
		h.HappenedTo(in, c, id)
	}
	return in
}

// CutBy ends the connection with RST because of a fault, which it returns as the cause.
func (c *Conn) CutBy(kind fault.Kind) error {
	c.CutFor(FaultError(kind))
	return FaultError(kind)
}

// Inject puts a fault in force.
func (h *Hub) Inject(f fault.Fault) *faults.Injected {
	in, begun := h.Faults.Add(f)
	if begun {
		h.Begin(in)
	}
	return in
}

// Begin applies a fault to the existing connections.
func (h *Hub) Begin(in *faults.Injected) {
	if in.Fault.Kind != fault.HalfOpen && in.Fault.Kind != fault.Absent {
		return
	}
	for _, c := range h.ConnsOf(in.Fault.Device) {
		if in.Fault.Kind == fault.HalfOpen {
			if c.Silence() {
				h.Happened(in, c)
			}
			continue
		}
		if c.Mode.Load() != Over {
			h.Happened(in, c)
			c.CutFor(FaultError(fault.Absent))
		}
	}
}

// Happened counts a fault. It is called when the effect is certain. If the client can observe the
// effect, it is called just before, so that a client that has seen a fault finds it counted. c is
// nil when there is no connection yet.
func (h *Hub) Happened(in *faults.Injected, c *Conn) { h.HappenedTo(in, c, identity.Identity{}) }

// HappenedTo is Happened for one identity of a connection that can have many.
func (h *Hub) HappenedTo(in *faults.Injected, c *Conn, id identity.Identity) {
	h.Faults.Count(in)
	h.Event(event.Event{Kind: event.FaultFired, Fault: in.Fault.Kind, DeviceID: id.Device, ModuleID: id.Module}, c)
	h.Changed.Wake()
}

// FaultError is the cause of a connection's end when a fault ended it.
type FaultError fault.Kind

// Error names the fault.
func (e FaultError) Error() string { return "fault " + fault.Kind(e).String() }

// Garbage applies a fault that sends bytes to the client: its own, or otherwise by default.
func (h *Hub) Garbage(kind fault.Kind, c *Conn, otherwise []byte) {
	if in := c.Fault(kind); in != nil {
		c.Write(GarbageOf(&in.Fault, otherwise))
	}
}

func GarbageOf(f *fault.Fault, otherwise []byte) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	return otherwise
}

// Unauthorized is the AMQP condition of a refused identity.
const Unauthorized = "amqp:unauthorized-access"

// Take applies the fault that a message requests, after it has called acknowledge. It returns false
// if the message is telemetry.
func (h *Hub) Take(m hubdata.Message, acknowledge func(faults.Request),
	obey func(faults.Request, *fault.Message)) bool {
	if h.FaultMessageMode == fault.StoreMessages {
		return false
	}
	kind, f, ok := faults.ReadRequest(m)
	if !ok {
		return false
	}
	f.Received = h.Now()
	h.Requests.Add(&f)
	acknowledge(kind)
	h.Changed.Wake()
	switch {
	case kind.On&m.Protocol == 0:
	case f.Delay == 0:
		obey(kind, &f)
	default:
		h.Later(f.Delay, nil, func() { obey(kind, &f) })
	}
	return true
}

// Taker returns a function that takes faults which hit an event of an identity. The connection may
// be nil.
func (h *Hub) Taker(c *Conn, id identity.Identity) func(fault.Kind) *fault.Fault {
	return func(kind fault.Kind) *fault.Fault {
		if in := h.Strike(kind, id, c, nil); in != nil {
			return &in.Fault
		}
		return nil
	}
}
