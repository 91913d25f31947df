package mqttfront

import (
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// A serviceReceiver is a client that has subscribed to the messages of a queue.
type serviceReceiver struct {
	c   *client
	qos byte // granted QoS
}

func (r serviceReceiver) Client() *hub.Conn { return r.c.Conn }

func (r serviceReceiver) Replaced(*hub.Conn) { r.c.CloseFor(hub.ErrReplaced) }

// Deliver publishes a C2D message; false when the window is full, no packet id is free, or the
// connection has ended. On a half-open connection it succeeds, because the hub cannot know that the
// client gets nothing.
func (r serviceReceiver) Deliver(q *hub.Queue, e *hub.QueuedC2D, unacked int) (sent, settled bool) {
	if mode := r.c.Mode.Load(); unacked >= q.Limits.Window || mode != hub.Open && mode != hub.Silent {
		return false, false
	}
	k := &mqtt.PublishPacket{QoS: r.qos, Topic: e.Topic, Payload: e.C2D.Body}
	if r.qos > 0 {
		if e.PacketID == 0 {
			if e.PacketID = q.NextIDLocked(func(uint16) bool { return true }); e.PacketID == 0 {
				return false, false
			}
		}
		k.ID, k.Dup = e.PacketID, e.Deliveries > 0
	}
	_, err := r.c.Write(mqtt.EncodePublish(mqtt.V311, k))
	return err == nil, r.qos == 0
}

// Skips is false: every message fits.
func (r serviceReceiver) Skips(*hub.QueuedC2D) bool { return false }

func (r serviceReceiver) Renews(by hub.Receiver) bool { return r.Client() == by.Client() }

// receive begins or pauses the delivery of each queue, as the filters of the session say, and sends
// certificates that wait.
func (f service) receive(c *client) {
	for _, box := range hub.Boxes {
		f.receiveFrom(c, box)
	}
	f.TellCertificates(c.ID)
	f.hub.Changed.Wake()
}

func (f service) receiveFrom(c *client, box hub.Box) {
	qos, ok := f.boxQoS(c, box)
	q := f.hub.PresentQueue(c.ID, box)
	if q == nil && ok {
		q, _ = f.hub.Queue(c.ID, box) // none if the device was removed meanwhile
	}
	switch {
	case q == nil:
	case !ok:
		q.Pause(c.Conn)
	case c.Mode.Load() != hub.Over: // else it would never be detached
		q.Receive(serviceReceiver{c, qos})
	}
}

// boxQoS returns the QoS with which a client receives the messages of a queue; false when it has
// not subscribed.
func (f service) boxQoS(c *client, box hub.Box) (qos byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	filters := []string{hub.Prefix(c.ID, box) + "#"}
	if f.hub.Gateway != nil && box == hub.Commands {
		filters = append(filters, bareFilter(c.ID))
	}
	if c.ID.Module != "" {
		filters = append(filters, c.ID.Resource()+"/#")
	}
	for _, name := range filters {
		if granted, has := c.session.filters[name]; has {
			qos, ok = max(qos, granted.QoS), true
		}
	}
	return qos, ok
}

// bareFilter returns the filter of C2D messages without a property bag, which gateways also grant.
func bareFilter(id identity.Identity) string {
	return strings.TrimSuffix(hub.Prefix(id, hub.Commands), "/")
}

// acknowledged handles a PUBACK. The service sends nothing with QoS 2, so it ignores other packets.
func (f service) acknowledged(c *client, typ byte, a mqtt.AckPacket) error {
	if typ != mqtt.Puback || f.hub.AcknowledgeAnswer(c.ID, a.ID) {
		return nil
	}
	for _, box := range hub.Boxes {
		if q := f.hub.PresentQueue(c.ID, box); q != nil && q.Acknowledge(c.Conn, a.ID, hubdata.C2DCompleted) {
			break
		}
	}
	f.hub.Changed.Wake()
	return nil
}
