package hub

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
)

// Event completes e and calls Options.OnEvent. It makes the notices of connections for back ends.
// The caller holds no lock.
func (h *Hub) Event(e event.Event, c *Conn) {
	if h.onEvent == nil && (c == nil || !h.Telemetry.Notifies(hubdata.EventSourceDeviceConnectionState)) {
		return
	}
	e.Time = h.Now()
	if c != nil {
		h.mu.Lock()
		id := c.ID
		h.mu.Unlock()
		e.Connection = c.Number
		if e.DeviceID == "" {
			e.DeviceID, e.ModuleID = id.Device, id.Module
		}
	}
	if c != nil {
		h.notifyConnection(e.Kind, identity.Identity{Device: e.DeviceID, Module: e.ModuleID}, c)
	}
	if h.onEvent != nil {
		h.onEvent(e)
	}
}

// Store adds messages to the log, or puts them in the store of the gateway. It returns when they
// are in the hub's store, if there is one. The caller holds no lock.
func (h *Hub) Store(all ...hubdata.Message) {
	h.Append(all...)
	h.Records.Saved()
}

// Append is Store without the wait for the hub's store. The caller calls Saved before it
// acknowledges the messages. It holds no lock.
func (h *Hub) Append(all ...hubdata.Message) {
	for i := range all {
		if h.Gateway != nil {
			h.take(all[i])
			continue
		}
		h.Telemetry.Add(all[i], h.originOf(telemetry.SenderOf(&all[i])))
		h.stored(&all[i])
	}
}

func (h *Hub) stored(m *hubdata.Message) {
	h.Event(event.Event{
		Kind: event.MessageStored, Connection: m.Connection, DeviceID: m.DeviceID, ModuleID: m.ModuleID, Name: m.MessageID,
		Bytes: len(m.Body), Protocol: m.Protocol,
	}, nil)
}

// Seconds returns d in seconds, rounded up.
func Seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
