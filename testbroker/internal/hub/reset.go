package hub

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Devices returns the registry: devices and their modules, by name.
func (h *Hub) Devices() []hubdata.Device {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]hubdata.Device, 0, len(h.registry))
	for id := range h.registry {
		all = append(all, h.deviceLocked(id))
	}
	slices.SortFunc(all, func(a, b hubdata.Device) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.ModuleID, b.ModuleID))
	})
	return all
}

// CloseConnections ends in order the connections of a device, named as in [Hub.Connections], and
// returns their number.
func (h *Hub) CloseConnections(device string) int {
	open := h.ConnsOf(device)
	h.Expel(open, device, ErrDropped, "amqp:connection:forced")
	return len(open)
}

// Reset restores the state of a new hub, except for the registry, the keys and policies, the
// certificates and the ports.
func (h *Hub) Reset() {
	h.mu.Lock()
	if other := h.resetting; other != nil {
		h.mu.Unlock()
		<-other
		return
	}
	through := make(chan struct{})
	h.resetting = through
	open := h.connsLocked("")
	h.mu.Unlock()
	for _, c := range open {
		c.CutFor(ErrReset)
	}
	for _, c := range open {
		<-c.Done
	}
	h.plug.Clear() // it still changes identities and twins, so it ends before all else is cleared

	h.Faults.Clear()
	h.resetGateway()
	h.log.clear()
	h.calls.clear()
	h.Files.Clear()
	h.issuer.clear()
	for _, q := range h.queuesOf("", Boxes[:]...) {
		q.stop()
	}
	for i := range h.notices {
		h.notices[i].clear()
	}
	h.mu.Lock()
	clear(h.queues)
	h.Records.Clear(tableMessages, tablePartitions, tableQueues, tableWaiting, tableFeedback, tableTwins)
	for _, f := range h.Fronts {
		f.Forget("")
	}
	clear(h.twinOf)
	clear(h.standing)
	h.orders.Clear()
	h.removed.clear()
	h.resetting = nil
	h.mu.Unlock()
	close(through)
	h.Records.Saved()
	h.Event(event.Event{Kind: event.HubReset}, nil)
	h.Changed.Wake()
}

// clear empties the log.
func (l *telemetryLog) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages.Clear()
	l.conflicts.Clear()
	clear(l.copies)
	l.events.log.Clear()
}

// clear forgets all calls that have ended.
func (m *methodCalls) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	calls := m.log.Entries
	m.log.Clear()
	m.log.Entries = slices.DeleteFunc(calls, func(c *methodCall) bool {
		_, open := m.open[c]
		return !open
	})
	maps.DeleteFunc(m.named, func(_ callName, c *methodCall) bool {
		_, open := m.open[c]
		return !open
	})
	m.answers.Clear()
}
