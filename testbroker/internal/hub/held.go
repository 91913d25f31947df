package hub

// Held returns the number of entries in each collection that [Options.Keep] bounds. For collections
// of each identity it is the largest.
func (h *Hub) Held() map[string]int {
	all := make(map[string]int)
	all["fault messages"] = len(h.Requests.Messages())
	all["messages"], all["conflicts"], all["copies"] = h.Telemetry.Held()
	h.calls.mu.Lock()
	all["calls"], all["answers"], all["request ids"] = len(h.calls.log.Entries), len(h.calls.answers.Entries),
		len(h.calls.named)
	h.calls.mu.Unlock()
	all["uploads"], all["upload URIs"], all["files"] = h.Files.Uploads.Held()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range h.queues {
		for name, q := range of {
			q.mu.Lock()
			all["C2D messages"] = max(all["C2D messages"], len(q.log.Entries)) // of both boxes
			q.mu.Unlock()
			if h.registry[name.id] == nil {
				all["queues of removed devices"]++
			}
		}
	}
	for _, t := range h.twinOf {
		t.mu.Lock()
		all["twin requests"] = max(all["twin requests"], len(t.requests.Entries))
		t.mu.Unlock()
	}
	return all
}
