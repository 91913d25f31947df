package testbroker

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"time"

	mochi "github.com/mochi-mqtt/server/v2"
)

const (
	listenerName  = "hub" // what mochi calls the place where connections come in
	writesPending = 256   // packets queued for one connection; mochi reserves room for each
)

// badPacket begins a packet of a type that does not exist, with a length that never ends.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// An mqttFront speaks MQTT 3.1.1.
type mqttFront struct {
	hub    *Hub
	server *mochi.Server

	// Guarded by Hub.mu.
	current  map[identity]*mqttConn // the newest connection of each identity
	sessions map[identity]*session  // those kept
}

var _ front = (*mqttFront)(nil)

func newMQTTFront(h *Hub) (*mqttFront, error) {
	f := &mqttFront{hub: h, current: make(map[identity]*mqttConn), sessions: make(map[identity]*session)}
	limits := mochi.NewDefaultServerCapabilities()
	limits.MaximumClientWritesPending = writesPending
	limits.MaximumPacketSize = MaxMessage + 1<<16 + 16 // body, topic, lengths
	limits.RetainAvailable = 0
	f.server = mochi.New(&mochi.Options{
		Capabilities:           limits,
		Logger:                 slog.New(slog.DiscardHandler),
		SysTopicResendInterval: 3600,
	})
	return f, f.server.AddHook(&hook{front: f}, nil)
}

func (f *mqttFront) below(c *conn) (net.Conn, []string) { return c.raw, nil }

// serve hands a connection to mochi until its end.
func (f *mqttFront) serve(c *conn) (Protocol, error) {
	m := &mqttConn{conn: c, front: f}
	f.hub.mu.Lock()
	c.peer = m
	f.hub.mu.Unlock()
	return 0, f.server.EstablishConnection(listenerName, m)
}

// close ends the hooks of mochi, which knows no listener of ours. A second call would panic.
func (f *mqttFront) close() error { return f.server.Close() }

// methodTargetLocked returns the present connection if it has subscribed to the method.
func (f *mqttFront) methodTargetLocked(id identity, name string) methodTarget {
	if c := f.current[id]; c != nil && c.hearsLocked(methodFilter, methodTopic+methodSegment(name)+"/#") {
		return mqttTarget{c}
	}
	return nil
}

// desiredListenersLocked returns the present connection if it has subscribed.
func (f *mqttFront) desiredListenersLocked(id identity) []desiredListener {
	if c := f.current[id]; c != nil && c.hearsLocked(desiredFilter) {
		return []desiredListener{mqttListener{c}}
	}
	return nil
}

// An mqttConn is a connection over MQTT, between mochi and the network. Faults that happen inside
// a packet act here.
type mqttConn struct {
	*conn
	front *mqttFront
	acks  ackQueue // PUBACKs that wait for their time

	// the filters that let something through, with their QoS; nil before the CONNACK. Guarded by
	// Hub.mu.
	heard map[string]byte

	// Of the connection's own goroutine.
	known    bool        // a CONNECT was read
	answered bool        // and refused by CONNACK
	parted   bool        // a DISCONNECT was read
	session  *session    // from the CONNECT on
	present  bool        // it was kept from an earlier connection
	spent    *Injected   // a quota that closes the connection as soon as it is accepted
	will     *Message    // to be logged when the client vanishes
	until    time.Time   // when its token ends; zero = it has none
	expiry   *time.Timer // ends the connection then
	framer   framer      // where the packets begin
	tear     *Injected   // a fault that cuts the connection inside the packet being read
}

var (
	_ net.Conn = (*mqttConn)(nil)
	_ peer     = (*mqttConn)(nil)
)

// Read gives mochi the bytes of the client, up to where a fault tears a packet.
func (c *mqttConn) Read(p []byte) (int, error) {
	for {
		if c.framer.torn {
			c.hub.happened(c.tear, c.conn)
			c.cutFor(faultError(DropDuringPublish))
			c.tear, c.framer.torn = nil, false
		}
		n, err := c.conn.Read(p)
		if n = c.framer.scan(p[:n], c.begins); n > 0 || err != nil {
			return n, err
		}
	}
}

// begins is told of the first byte of each packet and reports whether the connection is to be cut
// inside it.
func (c *mqttConn) begins(first byte) bool {
	if first>>4 != packetPublish {
		return false
	}
	c.tear = c.hub.faults.take(DropDuringPublish, c.id)
	return c.tear != nil
}

// drain waits until the connection ends. Only the connection's goroutine may call it, when the mode
// is not open.
func (c *mqttConn) drain() {
	var p [512]byte
	for {
		if _, err := c.Read(p[:]); err != nil {
			return
		}
	}
}

// Write sends packets. From a CONNACK or SUBACK on, what the session says gets through: a client
// that has the packet can count on that, and gets nothing before it.
func (c *mqttConn) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0]>>4 == packetConnack || p[0]>>4 == packetSuback) && c.mode.Load() == open {
		c.hub.mu.Lock()
		defer c.hub.mu.Unlock()
		if c.session != nil && c.spent == nil {
			c.heard = maps.Clone(c.session.filters)
		}
	}
	return c.conn.Write(p)
}

// expire ends the connection with its token. A client at the other end of a dead link would not
// learn of it.
func (c *mqttConn) expire() {
	if c.mode.Load() != silent {
		c.closeFor(ErrTokenExpired)
	}
}

func (c *mqttConn) matchesLocked(selector string) bool { return c.id.matches(selector) }

func (c *mqttConn) presentLocked(id identity) bool { return c.live && c.front.current[id] == c }

func (c *mqttConn) expel(_ string, cause error, _ string) { c.closeFor(cause) }

func (c *mqttConn) leaveLocked() {
	if c.front.current[c.id] == c {
		delete(c.front.current, c.id)
	}
}

// finish logs the will, unless the client took its leave, and tells of the end.
func (c *mqttConn) finish(cause error, live, closed bool) {
	h := c.hub
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if c.tear != nil {
		h.faults.release(c.tear)
	}
	if live && c.will != nil && !c.parted && !closed {
		m := *c.will
		m.Received = h.now()
		h.store(m)
	}
	if c.parted && errors.Is(cause, net.ErrClosed) {
		cause = ErrParted
	}
	switch {
	case live:
		h.event(Event{Kind: Disconnected, Err: cause}, c.conn)
	case !c.answered:
		h.event(Event{Kind: Refused, Err: cause}, c.conn)
	}
}
