package mqttfront

import (
	"errors"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/mochi-mqtt/server/v2/packets"
)

// maxFilters is how many topic filters one client may have.
const maxFilters = 5

// errFilter is the cause of refusing a filter.
var errFilter = errors.New("the hub has no such topics for this identity")

// refusedFilter is the SUBACK code of a filter that is not granted [MQTT-3.9.3].
const refusedFilter = 0x80

// A session holds a client's filters with their granted QoS. With CleanSession=0 it outlives the
// client's connections. Guarded by Front.mu.
type session struct {
	filters map[string]byte
}

// resume gives a connection its session: the kept one, or a new one. The previous connection has
// ended.
func (f *Front) resume(c *client, clean bool) {
	h := f.hub
	f.mu.Lock()
	kept := f.sessions[c.ID] != nil && !clean
	f.mu.Unlock()
	forget := (*hub.Injected)(nil)
	if kept {
		if forget = h.Faults.Take(fault.ForgetSession, c.ID); forget != nil {
			h.Happened(forget, c.Conn)
		}
	}
	if f.begin(c, clean, forget != nil) && !h.Registered(c.ID) { // removed since the authorization
		f.Forget(c.ID.String())
	}
}

// begin sets the connection's session, and reports whether it is a new one that is kept.
func (f *Front) begin(c *client, clean, forget bool) (kept bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if clean || forget {
		delete(f.sessions, c.ID)
	}
	if c.session = f.sessions[c.ID]; c.session != nil {
		c.present = true
		return false
	}
	c.session = &session{filters: make(map[string]byte)}
	if !clean {
		f.sessions[c.ID] = c.session
	}
	return !clean
}

// boxQoS returns the QoS with which a client receives the messages of a queue; false when it has
// not subscribed.
func (f *Front) boxQoS(c *client, box hub.Box) (qos byte, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	filters := []string{c.ID.Prefix(box) + "#"}
	if f.hub.Gateway != nil && box == hub.Commands {
		filters = append(filters, bareFilter(c.ID))
	}
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

// bareFilter returns the filter of C2D messages without a property bag, which gateways also grant.
func bareFilter(id hub.Identity) string { return strings.TrimSuffix(id.Prefix(hub.Commands), "/") }

// mayReceive reports whether the hub grants a filter to this identity.
func mayReceive(id hub.Identity, filter string) bool {
	switch filter {
	case twinResultFilter, desiredFilter, methodFilter, credentialsFilter, id.Prefix(hub.Commands) + "#":
		return true
	}
	if name, ok := strings.CutPrefix(filter, methodTopic); ok {
		name, ok = strings.CutSuffix(name, "/#")
		return ok && name != "" && !strings.ContainsAny(name, "/+#")
	}
	return id.Module != "" && (filter == id.Resource()+"/#" || filter == id.Prefix(hub.Inputs)+"#")
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
	for i, code := range codes {
		if code == refusedFilter && refuse == nil {
			h.Event(event.Event{Kind: event.Refused, Name: pk.Filters[i].Filter, Code: code, Err: errFilter}, c.Conn)
		}
	}
	f.suback(c, append([]byte{byte(pk.PacketID >> 8), byte(pk.PacketID)}, codes...))
	return nil
}

// grant adds filters to the session and returns the codes of the SUBACK.
func (f *Front) grant(c *client, filters packets.Subscriptions, refuse *hub.Injected) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	gateway := f.hub.Gateway != nil
	codes := make([]byte, len(filters))
	for i, f := range filters {
		_, again := c.session.filters[f.Filter]
		switch {
		case refuse != nil:
			codes[i] = refuse.Fault.Code
		case !mayReceive(c.ID, f.Filter) && (!gateway || f.Filter != bareFilter(c.ID)),
			f.Filter == credentialsFilter && !c.issues,
			!again && len(c.session.filters) >= maxFilters:
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
	if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
		return code
	}
	f.mu.Lock()
	for _, filter := range pk.Filters {
		delete(c.session.filters, filter.Filter)
	}
	f.mu.Unlock()
	f.attach(c)
	c.Write([]byte{packetUnsuback << 4, 2, byte(pk.PacketID >> 8), byte(pk.PacketID)})
	return nil
}

// Forget drops the kept session of the identity with a name, or all if it is empty.
func (f *Front) Forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == "" {
		clear(f.sessions)
	}
	delete(f.sessions, hub.SplitIdentity(name))
}
