package mqttfront

import (
	"slices"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// A plainReceiver is a client with subscriptions.
type plainReceiver struct{ c *client }

func (r plainReceiver) Client() *hub.Conn { return r.c.Conn }

// Skips reports whether no subscription of the session matches the topic.
func (r plainReceiver) Skips(e *hub.QueuedC2D) bool {
	r.c.front.mu.Lock()
	defer r.c.front.mu.Unlock()
	_, _, ok := r.c.session.matchLocked(e.Topic)
	return !ok
}

func (r plainReceiver) Renews(by hub.Receiver) bool { return r.Client() == by.Client() }

// Replaced does nothing: takeOver has ended the connection.
func (r plainReceiver) Replaced(*hub.Conn) {}

// Deliver publishes a C2D message that matches a subscription; false when none matches, the window
// is full, no packet id is free, or the connection has ended. On a half-open connection it
// succeeds, because the hub cannot know that the client gets nothing.
func (r plainReceiver) Deliver(q *hub.Queue, e *hub.QueuedC2D, unacked int) (sent, settled bool) {
	c := r.c
	if mode := c.Mode.Load(); mode != hub.Open && mode != hub.Silent {
		return false, false
	}
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	s := c.session
	qos, ids, ok := s.matchLocked(e.Topic)
	if !ok || qos > 0 && unacked+len(s.released) >= c.window {
		return false, false
	}
	k := &mqtt.PublishPacket{
		QoS: min(qos, c.front.options.CommandQoS), Retain: e.C2D.Retain, Topic: e.Topic,
		Properties: propertiesOf(e, q.Hub.Now()), Payload: e.C2D.Body,
	}
	for _, id := range ids {
		k.Properties = append(k.Properties, mqtt.Property{ID: mqtt.SubscriptionID, Number: id})
	}
	if k.QoS > 0 {
		if e.PacketID == 0 || s.sent[e.PacketID] != e.Sequence {
			if e.PacketID = s.freeIDLocked(q); e.PacketID == 0 {
				return false, false
			}
		} else {
			k.Dup = true
		}
		k.ID = e.PacketID
		s.sent[k.ID] = e.Sequence
	}
	packet := mqtt.EncodePublish(c.version, k)
	if c.limit > 0 && len(packet) > int(c.limit) {
		delete(s.sent, k.ID)
		return true, true // the standard has such messages dropped [MQTT-3.1.2-25]
	}
	_, err := c.Write(packet)
	return err == nil, k.QoS == 0
}

// matchLocked returns the QoS with which the session receives a topic and the identifiers of the
// matching subscriptions; false when none matches.
func (s *session) matchLocked(topic string) (qos byte, ids []uint32, ok bool) {
	for _, f := range s.filters {
		plain, _, _ := mqtt.Unshare(f.Name)
		if !mqtt.Covers(plain, topic) {
			continue
		}
		qos, ok = max(qos, f.QoS), true
		if f.identifier > 0 {
			ids = append(ids, f.identifier)
		}
	}
	slices.Sort(ids)
	return qos, ids, ok
}

// freeIDLocked returns a packet id that the session does not use; 0 if there is none.
func (s *session) freeIDLocked(q *hub.Queue) uint16 {
	return q.NextIDLocked(func(id uint16) bool {
		_, used := s.sent[id]
		return !used && !slices.Contains(s.released, id)
	})
}

// receive delivers waiting messages to the subscriptions of the client.
func (plain) receive(c *client) {
	q := c.Hub.PresentQueue(c.ID, hub.Commands)
	c.front.mu.Lock()
	wants := len(c.session.filters) > 0
	c.front.mu.Unlock()
	if q == nil && wants {
		q, _ = c.Hub.Queue(c.ID, hub.Commands) // none if the device was removed meanwhile
	}
	if q != nil && c.Mode.Load() != hub.Over { // else it would never be detached
		q.Receive(plainReceiver{c})
	}
	c.Hub.Changed.Wake()
}

// release sends the PUBREL of each message with QoS 2 that waits for its PUBCOMP.
func (c *client) release() {
	c.front.mu.Lock()
	ids := slices.Clone(c.session.released)
	c.front.mu.Unlock()
	for _, id := range ids {
		c.Write(mqtt.EncodeAck(c.version, mqtt.Pubrel, mqtt.AckPacket{ID: id}))
	}
}

// acknowledged handles a PUBACK, PUBREC or PUBCOMP. An error ends the connection.
func (plain) acknowledged(c *client, typ byte, a mqtt.AckPacket) error {
	h := c.Hub
	if c.Fault(fault.DropOnReceipt) != nil {
		c.CutBy(fault.DropOnReceipt)
		return nil
	}
	q := h.PresentQueue(c.ID, hub.Commands)
	if typ == mqtt.Pubcomp {
		c.front.mu.Lock()
		i := slices.Index(c.session.released, a.ID)
		if i >= 0 {
			c.session.released = slices.Delete(c.session.released, i, i+1)
		}
		c.front.mu.Unlock()
		if q != nil && i >= 0 {
			q.Kick() // the window has room again
		}
		return nil
	}
	to := hubdata.C2DCompleted
	if a.Code >= refusedFilter {
		to = hubdata.C2DRejected
	}
	found := c.settle(a.ID, typ == mqtt.Pubrec && to == hubdata.C2DCompleted)
	if found && q != nil {
		q.Acknowledge(c.Conn, a.ID, to)
		h.Changed.Wake()
	}
	if typ == mqtt.Pubrec && to == hubdata.C2DCompleted {
		rel := mqtt.AckPacket{ID: a.ID}
		if !found {
			rel.Code = mqtt.PacketIDNotFound
		}
		c.Write(mqtt.EncodeAck(c.version, mqtt.Pubrel, rel))
	}
	return nil
}

// settle removes a packet id from the unacknowledged messages of the session. A message that is to
// be released waits for its PUBCOMP, also when this is not its first PUBREC. settle returns false
// for an unknown packet id.
func (c *client) settle(id uint16, release bool) bool {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	s := c.session
	_, found := s.sent[id]
	delete(s.sent, id)
	if release && slices.Contains(s.released, id) {
		return true
	}
	if found && release {
		s.released = append(s.released, id)
	}
	return found
}
