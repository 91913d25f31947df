package testbroker

import (
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// maxFilters is how many topic filters one client may have.
const maxFilters = 5

// refusedFilter is the code of a filter that is not granted [MQTT-3.9.3].
const refusedFilter = 0x80

// A session is what the hub remembers of a client: the filters with their granted QoS. That of a
// client with CleanSession=0 outlives its connections. Guarded by Hub.mu.
type session struct {
	filters map[string]byte
}

// resume gives a connection its session: the one that was kept, or a new one. The connection before
// it has ended.
func (f *mqttFront) resume(c *mqttConn, clean bool) {
	h := f.hub
	h.mu.Lock()
	kept := f.sessions[c.id] != nil && !clean
	h.mu.Unlock()
	forget := (*Injected)(nil)
	if kept {
		if forget = h.faults.take(ForgetSession, c.id); forget != nil {
			h.happened(forget, c.conn)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if clean || forget != nil {
		delete(f.sessions, c.id)
	}
	if c.session = f.sessions[c.id]; c.session != nil {
		c.present = true
		return
	}
	c.session = &session{filters: make(map[string]byte)}
	if !clean && h.registry[c.id] != nil { // it may have been removed since it was authorized
		f.sessions[c.id] = c.session
	}
}

// commands says with which QoS a client receives commands; false when it does not.
func (f *mqttFront) commands(c *mqttConn) (qos byte, ok bool) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	filters := []string{c.id.commands() + "#"}
	if c.id.module != "" {
		filters = append(filters, c.id.resource()+"/#")
	}
	for _, f := range filters {
		if granted, has := c.session.filters[f]; has {
			qos, ok = max(qos, granted), true
		}
	}
	return qos, ok
}

// mayReceive says whether a filter is one of those that the hub has for this identity.
func mayReceive(id identity, filter string) bool {
	switch filter {
	case twinResultFilter, desiredFilter, methodFilter, id.commands() + "#":
		return true
	}
	if name, ok := strings.CutPrefix(filter, methodTopic); ok {
		name, ok = strings.CutSuffix(name, "/#")
		return ok && name != "" && !strings.ContainsAny(name, "/+#")
	}
	return id.module != "" && (filter == id.resource()+"/#" || filter == id.resource()+"/inputs/#")
}

// subscribe does what a SUBSCRIBE asks, answers it, and then sends the commands that wait. An error
// closes the connection.
func (f *mqttFront) subscribe(c *mqttConn, pk packets.Packet) error {
	h := f.hub
	if code := pk.SubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	if in := h.faults.take(DropOnSubscribe, c.id); in != nil {
		h.happened(in, c.conn)
		c.cutFor(faultError(DropOnSubscribe))
		return nil
	}
	refuse := h.faults.take(RefuseSubscribe, c.id)
	codes := f.grant(c, pk.Filters, refuse)
	if refuse != nil {
		h.happened(refuse, c.conn)
	}
	f.suback(c, append([]byte{byte(pk.PacketID >> 8), byte(pk.PacketID)}, codes...))
	return nil
}

// grant enters filters into the session and returns the codes of the SUBACK.
func (f *mqttFront) grant(c *mqttConn, filters packets.Subscriptions, refuse *Injected) []byte {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	codes := make([]byte, len(filters))
	for i, f := range filters {
		_, again := c.session.filters[f.Filter]
		switch {
		case refuse != nil:
			codes[i] = refuse.fault.Code
		case !mayReceive(c.id, f.Filter), !again && len(c.session.filters) >= maxFilters:
			codes[i] = refusedFilter
		default:
			codes[i] = min(f.Qos, 1)
			c.session.filters[f.Filter] = codes[i]
		}
	}
	return codes
}

// suback sends a SUBACK, unless a fault has it otherwise, and what waits for the subscription.
func (f *mqttFront) suback(c *mqttConn, body []byte) {
	h := f.hub
	if in := h.faults.take(LongSuback, c.id); in != nil {
		h.happened(in, c.conn)
		body = append(body, 1)
	}
	if in := h.faults.take(ShortSuback, c.id); in != nil {
		h.happened(in, c.conn)
		body = body[:len(body)-1]
	}
	if in := h.faults.take(SwallowSuback, c.id); in != nil {
		h.happened(in, c.conn)
		f.attach(c)
		return
	}
	if in := h.faults.take(SlowSuback, c.id); in != nil {
		h.happened(in, c.conn)
		due := time.Now().Add(in.fault.Delay)
		h.wg.Go(func() {
			if c.sleep(time.Until(due)) {
				c.Write(packet(packetSuback<<4, body))
				f.attach(c)
			}
		})
		return
	}
	h.garbage(GarbageOnSubscribe, c.conn, badPacket)
	c.Write(packet(packetSuback<<4, body))
	f.attach(c)
}

// unsubscribe does what an UNSUBSCRIBE asks and answers it. An error closes the connection.
func (f *mqttFront) unsubscribe(c *mqttConn, pk packets.Packet) error {
	h := f.hub
	if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	h.mu.Lock()
	for _, f := range pk.Filters {
		delete(c.session.filters, f.Filter)
	}
	h.mu.Unlock()
	f.attach(c)
	c.Write([]byte{packetUnsuback << 4, 2, byte(pk.PacketID >> 8), byte(pk.PacketID)})
	return nil
}

// forgetLocked drops the kept sessions that a selector means.
func (f *mqttFront) forgetLocked(selector string) {
	for id := range f.sessions {
		if id.matches(selector) {
			delete(f.sessions, id)
		}
	}
}
