package testbroker

// garbage has a fault send its bytes to the client, by default those given.
func (h *Hub) garbage(kind FaultKind, c *conn, otherwise []byte) {
	if in := h.faults.take(kind, c.id); in != nil {
		h.happened(in, c)
		c.Write(garbageOf(&in.fault, otherwise))
	}
}

func garbageOf(f *Fault, otherwise []byte) []byte {
	if len(f.Bytes) > 0 {
		return f.Bytes
	}
	return otherwise
}

// SendRaw sends bytes as they are to the established connections of a device, named as in
// [Hub.Connections], between two packets of the hub. It returns the number of connections. With it
// a test says at any moment what no hub would say: half a packet, a length that is not true, an
// acknowledgement of something that was never sent.
func (h *Hub) SendRaw(device string, p []byte) int {
	h.mu.Lock()
	var live []*conn
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
