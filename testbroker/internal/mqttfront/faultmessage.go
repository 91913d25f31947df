package mqttfront

import (
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// order handles a message that requests a fault; false when it does not.
func (f service) order(c *client, m hubdata.Message) bool {
	h := f.hub
	return h.Take(m, func(kind faults.Request) {
		c.flush()
		if m.QoS > 0 && (h.FaultMessageMode == fault.ObeyMessages || kind.On&hubdata.MQTT == 0) {
			c.acknowledge(m.PacketID, time.Time{}, mqtt.Success, nil)
		}
	}, f.obey)
}

func (f *Front) obey(kind faults.Request, asked *fault.Message) {
	h := f.hub
	id := identity.Identity{Device: asked.DeviceID, Module: asked.ModuleID}
	f.mu.Lock()
	c := f.current[id]
	f.mu.Unlock()
	stands := kind.Stand(asked, false)
	happened := c != nil || stands != nil
	h.Requests.Obey(id, asked, happened, stands)
	cause := faults.RequestError{Kind: asked.Type, Reason: asked.Reason}
	if happened {
		on := (*hub.Conn)(nil)
		if c != nil {
			on = c.Conn
		}
		h.Event(event.Event{Kind: event.FaultObeyed, DeviceID: id.Device, ModuleID: id.Module, Err: cause}, on)
	}
	switch {
	case c == nil:
	case kind.Cut:
		c.CutFor(cause)
	default:
		c.CloseGracefully(cause)
	}
	h.Changed.Wake()
}

// standing refuses a CONNECT because its device requested that. An error ends the connection.
func (c *client) standing() error {
	o, ok := c.Hub.Requests.Stands(c.ID, func(o faults.Standing) bool { return !o.Once })
	if !ok {
		return nil
	}
	cause := o.Cause()
	if o.Cut {
		c.CutFor(cause)
		return cause
	}
	return c.refuse(o.Code, cause, nil)
}
