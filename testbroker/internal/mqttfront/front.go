package mqttfront

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	mochi "github.com/mochi-mqtt/server/v2"
)

const (
	listenerName  = "hub" // what mochi calls the place where connections come in
	writesPending = 256   // packets queued for one connection; mochi reserves room for each
)

// badPacket begins a packet of a type that does not exist, with a length that never ends.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// A Front speaks MQTT 3.1.1.
type Front struct {
	hub    *hub.Hub
	server *mochi.Server

	// Guarded by Hub.mu.
	current  map[hub.Identity]*client  // the newest connection of each identity
	sessions map[hub.Identity]*session // those kept
}

var _ hub.Front = (*Front)(nil)

func New(h *hub.Hub) (*Front, error) {
	f := &Front{hub: h, current: make(map[hub.Identity]*client), sessions: make(map[hub.Identity]*session)}
	limits := mochi.NewDefaultServerCapabilities()
	limits.MaximumClientWritesPending = writesPending
	limits.MaximumPacketSize = hub.MaxMessage + 1<<16 + 16 // body, topic, lengths
	limits.RetainAvailable = 0
	f.server = mochi.New(&mochi.Options{
		Capabilities:           limits,
		Logger:                 slog.New(slog.DiscardHandler),
		SysTopicResendInterval: 3600,
	})
	return f, f.server.AddHook(&hook{front: f}, nil)
}

func (f *Front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

// Serve hands a connection to mochi until its end.
func (f *Front) Serve(c *hub.Conn) (hub.Protocol, error) {
	m := &client{Conn: c, front: f}
	f.hub.Mu.Lock()
	c.Peer = m
	f.hub.Mu.Unlock()
	return 0, f.server.EstablishConnection(listenerName, m)
}

// Shutdown ends the hooks of mochi, which knows no listener of ours. A second call would panic.
func (f *Front) Shutdown() error { return f.server.Close() }

// MethodTargetLocked returns the present connection if it has subscribed to the method.
func (f *Front) MethodTargetLocked(id hub.Identity, name string) hub.MethodTarget {
	if c := f.current[id]; c != nil && c.hearsLocked(methodFilter, methodTopic+methodSegment(name)+"/#") {
		return methodTarget{c}
	}
	return nil
}

// DesiredListenersLocked returns the present connection if it has subscribed.
func (f *Front) DesiredListenersLocked(id hub.Identity) []hub.DesiredListener {
	if c := f.current[id]; c != nil && c.hearsLocked(desiredFilter) {
		return []hub.DesiredListener{desiredListener{c}}
	}
	return nil
}

// A client is a connection over MQTT, between mochi and the network. Faults that happen inside
// a packet act here.
type client struct {
	*hub.Conn
	front *Front
	acks  hub.AckQueue // PUBACKs that wait for their time

	// the filters that let something through, with their QoS; nil before the CONNACK. Guarded by
	// Hub.mu.
	heard map[string]byte

	// Of the connection's own goroutine.
	known    bool          // a CONNECT was read
	answered bool          // and refused by CONNACK
	parted   bool          // a DISCONNECT was read
	session  *session      // from the CONNECT on
	present  bool          // it was kept from an earlier connection
	spent    *hub.Injected // a quota that closes the connection as soon as it is accepted
	will     *hub.Message  // to be logged when the client vanishes
	until    time.Time     // when its token ends; zero = it has none
	expiry   *time.Timer   // ends the connection then
	framer   framer        // where the packets begin
	tear     *hub.Injected // a fault that cuts the connection inside the packet being read
}

var (
	_ net.Conn = (*client)(nil)
	_ hub.Peer = (*client)(nil)
)

// Read gives mochi the bytes of the client, up to where a fault tears a packet.
func (c *client) Read(p []byte) (int, error) {
	for {
		if c.framer.torn {
			c.Hub.Happened(c.tear, c.Conn)
			c.CutFor(hub.FaultError(hub.DropDuringPublish))
			c.tear, c.framer.torn = nil, false
		}
		n, err := c.Conn.Read(p)
		if n = c.framer.scan(p[:n], c.begins); n > 0 || err != nil {
			return n, err
		}
	}
}

// begins takes the first byte of each packet and reports whether the connection is to be cut
// inside it.
func (c *client) begins(first byte) bool {
	if first>>4 != packetPublish {
		return false
	}
	c.tear = c.Hub.Faults.Take(hub.DropDuringPublish, c.ID)
	return c.tear != nil
}

// drain waits until the connection ends. Only the connection's goroutine may call it, when the mode
// is not open.
func (c *client) drain() {
	var p [512]byte
	for {
		if _, err := c.Read(p[:]); err != nil {
			return
		}
	}
}

// Write sends packets. From a CONNACK or SUBACK on, what the session says gets through: a client
// that has the packet can count on that, and gets nothing before it.
func (c *client) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0]>>4 == packetConnack || p[0]>>4 == packetSuback) && c.Mode.Load() == hub.Open {
		c.Hub.Mu.Lock()
		defer c.Hub.Mu.Unlock()
		if c.session != nil && c.spent == nil {
			c.heard = maps.Clone(c.session.filters)
		}
	}
	return c.Conn.Write(p)
}

// expire ends the connection with its token. A client at the other end of a dead link would not
// learn of it.
func (c *client) expire() {
	if c.Mode.Load() != hub.Silent {
		c.CloseFor(hub.ErrTokenExpired)
	}
}

func (c *client) MatchesLocked(selector string) bool { return c.ID.Matches(selector) }

func (c *client) PresentLocked(id hub.Identity) bool { return c.Live && c.front.current[id] == c }

func (c *client) Expel(_ string, cause error, _ string) { c.CloseFor(cause) }

func (c *client) LeaveLocked() {
	if c.front.current[c.ID] == c {
		delete(c.front.current, c.ID)
	}
}

// Finish logs the will, unless the client took its leave, and tells of the end.
func (c *client) Finish(cause error, live, closed bool) {
	h := c.Hub
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if c.tear != nil {
		h.Faults.Release(c.tear)
	}
	if live && c.will != nil && !c.parted && !closed {
		m := *c.will
		m.Received = h.Now()
		h.Store(m)
	}
	if c.parted && errors.Is(cause, net.ErrClosed) {
		cause = hub.ErrParted
	}
	switch {
	case live:
		h.Event(hub.Event{Kind: hub.Disconnected, Err: cause}, c.Conn)
	case !c.answered:
		h.Event(hub.Event{Kind: hub.Refused, Err: cause}, c.Conn)
	}
}
