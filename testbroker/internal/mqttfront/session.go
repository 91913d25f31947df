package mqttfront

import (
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/mochi-mqtt/server/v2/packets"
)

// maxFilters is how many topic filters one client may have.
const maxFilters = 5

// refusedFilter is the SUBACK code of a filter that is not granted [MQTT-3.9.3].
const refusedFilter = 0x80

// A session holds a client's filters with their granted QoS. With CleanSession=0 it outlives the
// client's connections. Guarded by Hub.mu.
type session struct {
	filters map[string]byte
}

// resume gives a connection its session: the kept one, or a new one. The previous connection has
// ended.
func (f *Front) resume(c *client, clean bool) {
	h := f.hub
	h.Mu.Lock()
	kept := f.sessions[c.ID] != nil && !clean
	h.Mu.Unlock()
	forget := (*hub.Injected)(nil)
	if kept {
		if forget = h.Faults.Take(fault.ForgetSession, c.ID); forget != nil {
			h.Happened(forget, c.Conn)
		}
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if clean || forget != nil {
		delete(f.sessions, c.ID)
	}
	if c.session = f.sessions[c.ID]; c.session != nil {
		c.present = true
		return
	}
	c.session = &session{filters: make(map[string]byte)}
	if !clean && h.Registry[c.ID] != nil { // it may have been removed since the authorization
		f.sessions[c.ID] = c.session
	}
}

// c2dQoS returns the QoS with which a client receives C2D messages; false when it has not
// subscribed.
func (f *Front) c2dQoS(c *client) (qos byte, ok bool) {
	h := f.hub
	h.Mu.Lock()
	defer h.Mu.Unlock()
	filters := []string{c.ID.DeviceBound() + "#"}
	if c.ID.Module != "" {
		filters = append(filters, c.ID.Resource()+"/#")
	}
	for _, f := range filters {
		if granted, has := c.session.filters[f]; has {
			qos, ok = max(qos, granted), true
		}
	}
	return qos, ok
}

// mayReceive reports whether the hub grants a filter to this identity.
func mayReceive(id hub.Identity, filter string) bool {
	switch filter {
	case twinResultFilter, desiredFilter, methodFilter, id.DeviceBound() + "#":
		return true
	}
	if name, ok := strings.CutPrefix(filter, methodTopic); ok {
		name, ok = strings.CutSuffix(name, "/#")
		return ok && name != "" && !strings.ContainsAny(name, "/+#")
	}
	return id.Module != "" && (filter == id.Resource()+"/#" || filter == id.Resource()+"/inputs/#")
}

// subscribe handles a SUBSCRIBE, answers it, and then delivers waiting C2D messages. An error
// closes the connection.
func (f *Front) subscribe(c *client, pk packets.Packet) error {
	h := f.hub
	if code := pk.SubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	if in := h.Faults.Take(fault.DropOnSubscribe, c.ID); in != nil {
		h.Happened(in, c.Conn)
		c.CutFor(hub.FaultError(fault.DropOnSubscribe))
		return nil
	}
	refuse := h.Faults.Take(fault.RefuseSubscribe, c.ID)
	codes := f.grant(c, pk.Filters, refuse)
	if refuse != nil {
		h.Happened(refuse, c.Conn)
	}
	f.suback(c, append([]byte{byte(pk.PacketID >> 8), byte(pk.PacketID)}, codes...))
	return nil
}

// grant adds filters to the session and returns the codes of the SUBACK.
func (f *Front) grant(c *client, filters packets.Subscriptions, refuse *hub.Injected) []byte {
	h := f.hub
	h.Mu.Lock()
	defer h.Mu.Unlock()
	codes := make([]byte, len(filters))
	for i, f := range filters {
		_, again := c.session.filters[f.Filter]
		switch {
		case refuse != nil:
			codes[i] = refuse.Fault.Code
		case !mayReceive(c.ID, f.Filter), !again && len(c.session.filters) >= maxFilters:
			codes[i] = refusedFilter
		default:
			codes[i] = min(f.Qos, 1)
			c.session.filters[f.Filter] = codes[i]
		}
	}
	return codes
}

// suback sends a SUBACK, unless a fault intervenes, and messages that wait for the subscription.
func (f *Front) suback(c *client, body []byte) {
	h := f.hub
	if in := h.Faults.Take(fault.LongSuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		body = append(body, 1)
	}
	if in := h.Faults.Take(fault.ShortSuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		body = body[:len(body)-1]
	}
	if in := h.Faults.Take(fault.SwallowSuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		f.attach(c)
		return
	}
	if in := h.Faults.Take(fault.SlowSuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		due := time.Now().Add(in.Fault.Delay)
		h.Wg.Go(func() {
			if c.Sleep(time.Until(due)) {
				c.Write(packet(packetSuback<<4, body))
				f.attach(c)
			}
		})
		return
	}
	h.Garbage(fault.GarbageOnSubscribe, c.Conn, badPacket)
	c.Write(packet(packetSuback<<4, body))
	f.attach(c)
}

// unsubscribe handles an UNSUBSCRIBE and answers it. An error closes the connection.
func (f *Front) unsubscribe(c *client, pk packets.Packet) error {
	h := f.hub
	if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	h.Mu.Lock()
	for _, f := range pk.Filters {
		delete(c.session.filters, f.Filter)
	}
	h.Mu.Unlock()
	f.attach(c)
	c.Write([]byte{packetUnsuback << 4, 2, byte(pk.PacketID >> 8), byte(pk.PacketID)})
	return nil
}

// ForgetLocked drops the kept sessions that match a selector.
func (f *Front) ForgetLocked(selector string) {
	for id := range f.sessions {
		if id.Matches(selector) {
			delete(f.sessions, id)
		}
	}
}
