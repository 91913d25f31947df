package testbroker

// Held returns the number of entries in each collection that [Options.Keep] bounds.
func Held(h *Hub) map[string]int { return h.hub.Held() }
