package hub

// Garbage has a fault send its bytes to the client, by default those given.
func (h *Hub) Garbage(kind FaultKind, c *Conn, otherwise []byte) {
	if in := h.Faults.Take(kind, c.ID); in != nil {
		h.Happened(in, c)
		c.Write(GarbageOf(&in.Fault, otherwise))
	}
}

func GarbageOf(f *Fault, otherwise []byte) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	return otherwise
}

// SendRaw is testbroker.Hub.SendRaw.
func (h *Hub) SendRaw(device string, p []byte) int {
	h.Mu.Lock()
	var live []*Conn
	for _, c := range h.ConnsLocked(device) {
		if c.Live {
			live = append(live, c)
		}
	}
	h.Mu.Unlock()
	for _, c := range live {
		c.Write(p)
	}
	return len(live)
}
