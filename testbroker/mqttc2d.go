package testbroker

import "maps"

// An mqttReceiver is a client that has subscribed.
type mqttReceiver struct {
	c   *mqttConn
	qos byte // that it was granted
}

func (r mqttReceiver) client() *conn { return r.c.conn }

func (r mqttReceiver) replaced(*conn) { r.c.closeFor(ErrReplaced) }

// deliver publishes a command; false when the window is full or the connection is over. A client at
// the other end of a dead link would not learn of it, and the hub does not know.
func (r mqttReceiver) deliver(q *c2dQueue, e *c2dEntry, unacked int) (sent, settled bool) {
	if mode := r.c.mode.Load(); unacked >= q.hub.c2d.Window || mode != open && mode != silent {
		return false, false
	}
	flags := r.qos << 1
	var id []byte
	if r.qos > 0 {
		if e.PacketID == 0 {
			e.PacketID = q.nextIDLocked()
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

func (r mqttReceiver) renews(by c2dReceiver) bool { return r.client() == by.client() }

// attach lets through to a connection what its session says, and commands that wait.
func (f *mqttFront) attach(c *mqttConn) {
	h := f.hub
	qos, ok := f.commands(c)
	h.mu.Lock()
	c.heard = maps.Clone(c.session.filters)
	q := h.queues[c.id]
	if q == nil && ok && h.registry[c.id] != nil {
		q = h.queueLocked(c.id)
	}
	h.mu.Unlock()
	switch {
	case q == nil:
	case !ok:
		q.pause(c.conn)
	case c.mode.Load() != over: // or it would never be detached
		q.receive(mqttReceiver{c, qos})
	}
	h.changed.wake()
}

// complete is told of a PUBACK.
func (f *mqttFront) complete(c *mqttConn, packetID uint16) {
	h := f.hub
	h.mu.Lock()
	q := h.queues[c.id]
	h.mu.Unlock()
	if q == nil {
		return
	}
	q.acknowledge(c.conn, packetID)
	h.changed.wake()
}
