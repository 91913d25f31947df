package mqttfront

import (
	"cmp"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// A dispatch is a message of the hub for a device.
type dispatch struct {
	feature, typ string
	id           nextwire.ID // correlation data
	message      nextwire.Message
	body         []byte        // in place of message
	expiry       time.Duration // zero: none. Messages with an expiry have QoS 1.
	exact        *uint32       // in place of expiry on the wire
}

// dispatch sends a message to a client, subject to faults; false when it cannot be sent.
func (c *client) dispatch(d dispatch) bool {
	h := c.Hub
	name, _, _ := strings.Cut(d.typ, ":")
	fits := func(f *fault.Fault) bool { return f.Message == "" || f.Message == name }
	take := func(kind fault.Kind) *faults.Injected { return h.Strike(kind, c.ID, c.Conn, fits) }
	if take(fault.SwallowDispatch) != nil {
		return true
	}
	if in := take(fault.GarbleDispatch); in != nil {
		d.body = hub.GarbageOf(&in.Fault, []byte{0xff})
	}
	if in := take(fault.MisnameDispatch); in != nil {
		d.id[0] ^= 0xff
		if id, ok := nextwire.ParseID(in.Fault.Bytes); ok {
			d.id = id
		}
	}
	if in := take(fault.RetypeDispatch); in != nil {
		d.typ = cmp.Or(in.Fault.Text, name+":2")
	}
	qos := byte(0)
	if d.expiry > 0 {
		qos = 1
	}
	if take(fault.OmitExpiry) != nil {
		d.expiry = 0
	}
	if in := take(fault.WrongExpiry); in != nil {
		n := uint32(in.Fault.Delay / time.Second)
		d.exact = &n
	}
	times := 1
	if take(fault.DuplicateDispatch) != nil {
		times = 2
	}
	send := func() (sent bool) {
		for range times {
			sent = c.put(d, qos) || sent
		}
		return sent
	}
	if in := take(fault.SlowDispatch); in != nil {
		h.Later(in.Fault.Delay, c.Closed, func() { send() })
		return true
	}
	return send()
}

// put sends a message with QoS 0 if the client has subscribed, or puts one with QoS 1 into the
// session.
func (c *client) put(d dispatch, qos byte) bool {
	f := c.front
	f.mu.Lock()
	sent, overflow := c.putLocked(d, qos)
	f.mu.Unlock()
	if overflow {
		c.end(mqtt.QuotaExceeded, errOverflow, nil)
	}
	return sent
}

func (c *client) putLocked(d dispatch, qos byte) (sent, overflow bool) {
	granted, ok := c.grantedLocked(nextwire.Down(c.ID.Device, d.feature))
	if !ok || c.Mode.Load() == hub.Over {
		return false, false
	}
	k := d.packet(c.ID.Device)
	if k.QoS = min(qos, granted); k.QoS == 1 {
		var until time.Time
		if d.expiry > 0 && d.exact == nil {
			until = time.Now().Add(d.expiry)
		}
		if !c.session.queue.add(k, until) {
			delete(c.front.sessions, c.ID)
			return false, true
		}
		c.pumpLocked()
		return true, false
	}
	packet := mqtt.EncodePublish(mqtt.V5, k)
	if c.limit > 0 && len(packet) > int(c.limit) {
		return true, false // the standard has such messages dropped [MQTT-3.1.2-25]
	}
	_, err := c.Write(packet)
	return err == nil, false
}

// grantedLocked returns the QoS with which the client receives a topic. Front.mu is held.
func (c *client) grantedLocked(topic string) (qos byte, ok bool) {
	for _, s := range c.heard {
		if mqtt.Covers(s.Name, topic) {
			qos, ok = max(qos, s.QoS), true
		}
	}
	return qos, ok
}

// packet returns the PUBLISH of a message, with QoS 0.
func (d dispatch) packet(device string) *mqtt.PublishPacket {
	k := &mqtt.PublishPacket{Topic: nextwire.Down(device, d.feature), Payload: d.body}
	if d.body == nil {
		k.Payload = nextwire.Append(nil, d.message)
	}
	switch {
	case d.exact != nil:
		k.Properties = append(k.Properties, mqtt.Property{ID: mqtt.MessageExpiry, Number: *d.exact})
	case d.expiry > 0:
		k.Properties = append(k.Properties, mqtt.Property{ID: mqtt.MessageExpiry, Number: seconds(d.expiry)})
	}
	k.Properties = append(k.Properties,
		mqtt.Property{ID: mqtt.ContentType, Text: nextwire.ContentType},
		mqtt.Property{ID: mqtt.CorrelationData, Text: string(d.id[:])},
		mqtt.Property{ID: mqtt.UserProperty, Name: nextwire.PropertyType, Text: d.typ},
	)
	return k
}
