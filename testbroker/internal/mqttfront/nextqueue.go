package mqttfront

import (
	"errors"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// errOverflow is the cause of a connection's end when its session held too much.
var errOverflow = errors.New("too many messages wait for the device; its session is gone")

// A nextQueue has the messages with QoS 1 of a session that the device has not acknowledged, in
// order. Guarded by Front.mu.
type nextQueue struct {
	all   []*queued
	bytes int
	id    uint16 // the last packet id
}

type queued struct {
	packet *mqtt.PublishPacket
	until  time.Time // its expiry; zero = none
	on     uint64    // number of the connection that has carried it last; zero = none
}

// add adds a message; false when the queue is full.
func (q *nextQueue) add(k *mqtt.PublishPacket, until time.Time) bool {
	q.expire(time.Now())
	if len(q.all) >= nextwire.QueuedMessages || q.bytes+len(k.Payload) > nextwire.QueuedBytes {
		return false
	}
	q.all = append(q.all, &queued{packet: k, until: until})
	q.bytes += len(k.Payload)
	return true
}

// expire drops the messages whose time is over. Their packet ids are free at once: the answer to
// such a message is ignored.
func (q *nextQueue) expire(now time.Time) {
	q.drop(func(m *queued) bool { return !m.until.IsZero() && !m.until.After(now) })
}

// acknowledged drops the message with a packet id on a connection.
func (q *nextQueue) acknowledged(on uint64, id uint16) {
	q.drop(func(m *queued) bool { return m.on == on && m.packet.ID == id })
}

func (q *nextQueue) drop(what func(*queued) bool) {
	q.all = slices.DeleteFunc(q.all, func(m *queued) bool {
		if !what(m) {
			return false
		}
		q.bytes -= len(m.packet.Payload)
		return true
	})
}

// next returns an unused packet id.
func (q *nextQueue) next() uint16 {
	for {
		q.id++
		used := slices.ContainsFunc(q.all, func(m *queued) bool { return m.packet.ID == q.id })
		if q.id != 0 && !used {
			return q.id
		}
	}
}

// pumpLocked sends the messages of the session that the client's window has room for. Their expiry
// is what is left of it. Front.mu is held.
func (c *client) pumpLocked() {
	q := &c.session.queue
	if c.heard == nil {
		return // before the CONNACK
	}
	now := time.Now()
	q.expire(now)
	flying := 0
	for _, m := range slices.Clone(q.all) {
		if m.on == c.Number {
			flying++
			continue
		}
		if mode := c.Mode.Load(); flying >= c.window || mode != hub.Open && mode != hub.Silent {
			return
		}
		if m.packet.Dup = m.packet.ID != 0; !m.packet.Dup {
			m.packet.ID = q.next()
		}
		if e := &m.packet.Properties[0]; e.ID == mqtt.MessageExpiry && !m.until.IsZero() {
			e.Number = seconds(m.until.Sub(now))
		}
		packet := mqtt.EncodePublish(mqtt.V5, m.packet)
		if c.limit > 0 && len(packet) > int(c.limit) {
			q.drop(func(other *queued) bool { return other == m }) // [MQTT-3.1.2-25]
			continue
		}
		m.on = c.Number
		flying++
		c.Write(packet)
	}
}
