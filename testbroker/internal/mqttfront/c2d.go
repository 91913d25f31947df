package mqttfront

import (
	"maps"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A receiver is a client that has subscribed to the messages of a queue.
type receiver struct {
	c   *client
	qos byte // granted QoS
}

func (r receiver) Client() *hub.Conn { return r.c.Conn }

func (r receiver) Replaced(*hub.Conn) { r.c.CloseFor(hub.ErrReplaced) }

// Deliver publishes a C2D message; false when the window is full or the connection has ended. On a
// half-open connection it succeeds, because the hub cannot know that the client gets nothing.
func (r receiver) Deliver(q *hub.Queue, e *hub.QueuedC2D, unacked int) (sent, settled bool) {
	if mode := r.c.Mode.Load(); unacked >= q.Limits.Window || mode != hub.Open && mode != hub.Silent {
		return false, false
	}
	flags := r.qos << 1
	var id []byte
	if r.qos > 0 {
		if e.PacketID == 0 {
			e.PacketID = q.NextIDLocked()
		}
		id = []byte{byte(e.PacketID >> 8), byte(e.PacketID)}
		if e.Deliveries > 0 {
			flags |= 8
		}
	}
	topic := []byte{byte(len(e.Topic) >> 8), byte(len(e.Topic))}
	_, err := r.c.Write(packet(packetPublish<<4|flags, append(topic, e.Topic...), id, e.C2D.Body))
	return err == nil, r.qos == 0
}

// Skips is false: every message fits.
func (r receiver) Skips(*hub.QueuedC2D) bool { return false }

func (r receiver) Renews(by hub.Receiver) bool { return r.Client() == by.Client() }

// attach enables the subscriptions of the connection's session and delivers waiting C2D messages
// and certificates.
func (f *Front) attach(c *client) {
	h := f.hub
	f.enable(c)
	for _, box := range hub.Boxes {
		f.receive(c, box)
	}
	f.TellCertificates(c.ID)
	h.Changed.Wake()
}

// receive begins or pauses the delivery of a queue, as the filters of the connection's session say.
func (f *Front) receive(c *client, box hub.Box) {
	h := f.hub
	qos, ok := f.boxQoS(c, box)
	q := h.PresentQueue(c.ID, box)
	if q == nil && ok {
		q, _ = h.Queue(c.ID, box) // none if the device was removed meanwhile
	}
	switch {
	case q == nil:
	case !ok:
		q.Pause(c.Conn)
	case c.Mode.Load() != hub.Over: // else it would never be detached
		q.Receive(receiver{c, qos})
	}
}

// enable makes the filters of the connection's session effective.
func (f *Front) enable(c *client) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.heard = maps.Clone(c.session.filters)
}

// complete handles a PUBACK.
func (f *Front) complete(c *client, packetID uint16) {
	h := f.hub
	if h.AcknowledgeAnswer(c.ID, packetID) {
		return
	}
	for _, box := range hub.Boxes {
		if q := h.PresentQueue(c.ID, box); q != nil && q.Acknowledge(c.Conn, packetID, hubdata.Completed) {
			break
		}
	}
	h.Changed.Wake()
}
