package hub

import (
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// Garbage applies a fault that sends bytes to the client: its own, or otherwise by default.
func (h *Hub) Garbage(kind fault.Kind, c *Conn, otherwise []byte) {
	if in := h.Faults.Take(kind, c.ID); in != nil {
		h.Happened(in, c)
		c.Write(GarbageOf(&in.Fault, otherwise))
	}
}

func GarbageOf(f *fault.Fault, otherwise []byte) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	return otherwise
}

// SendRaw sends bytes unchanged to the established connections of a device, named as in
// [Hub.Connections], between two packets of the hub.
func (h *Hub) SendRaw(device string, p []byte) int {
	h.mu.Lock()
	var live []*Conn
	for _, c := range h.connsLocked(device) {
		if c.live {
			live = append(live, c)
		}
	}
	h.mu.Unlock()
	for _, c := range live {
		c.Write(p)
	}
	return len(live)
}
