// Package mqttfront serves MQTT in three dialects: 3.1.1 as the service speaks it, 5 as a hub with
// the MQTT v5 connection profile does, and both as a plain broker on topics of a template. The log,
// the queues and the faults of the hub are the same for all.
package mqttfront

import (
	"maps"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// A dialect is what clients say to the hub over MQTT: their identities, topics and messages. Its
// methods are called by the connection's goroutine. Reason codes are those of MQTT 5.
type dialect interface {
	// speaks reports whether the hub speaks a version.
	speaks(level byte) bool
	// identify returns the identity that a CONNECT states, and with an error the code of the refusal.
	identify(c *client, k *mqtt.ConnectPacket) (id identity.Identity, code byte, err error)
	// authenticate checks the credentials of a client. code is that of a refusal.
	authenticate(c *client, k *mqtt.ConnectPacket) (code byte, err error)
	// will returns the message of a CONNECT's will. code is that of a refusal; 0 ends the connection.
	will(c *client, w *mqtt.PublishPacket) (m hubdata.Message, code byte, err error)
	// joined notes what the CONNECT says about an authenticated client.
	joined(c *client)
	// keepAlive returns the keep-alive in force; zero = none.
	keepAlive(k *mqtt.ConnectPacket) time.Duration
	// mayReceive returns the code of a filter for which there is room in the session: the granted QoS,
	// or why it is refused. Front.mu is held.
	mayReceive(c *client, f mqtt.Filter, all mqtt.Properties) (code byte, why string)
	// receive begins or pauses deliveries to the client, as the filters of its session say.
	receive(c *client)
	// acknowledged handles a PUBACK, PUBREC or PUBCOMP. An error ends the connection.
	acknowledged(c *client, typ byte, a mqtt.AckPacket) error
	// published handles a PUBLISH. An error ends the connection.
	published(c *client, k *mqtt.PublishPacket) error
	// methodTarget and desiredListener return the present connection of an identity if it takes a
	// method, or changes of desired properties; otherwise nil. Front.mu is held.
	methodTarget(c *client, name string) hub.MethodTarget
	desiredListener(c *client) hub.DesiredListener
}

// A Dialect says which dialect a front speaks: by default that of the service.
type Dialect struct {
	Broker  *Options // of a plain broker
	Profile *Profile // MQTT v5
}

// A Front serves MQTT.
type Front struct {
	hub     *hub.Hub
	dialect dialect
	options *Options // what a broker announces and enforces; all zero for the service
	expiry  uint32   // session expiry interval of clients that ask for none, in seconds

	mu       sync.Mutex                     // guards the fields below, the sessions and client.heard
	current  map[identity.Identity]*client  // the newest connection of each identity
	sessions map[identity.Identity]*session // of connected clients, and those that are kept
}

var _ hub.Front = (*Front)(nil)

// New makes the front of a hub.
func New(h *hub.Hub, d Dialect) *Front {
	f := &Front{hub: h, current: make(map[identity.Identity]*client), sessions: make(map[identity.Identity]*session)}
	switch {
	case d.Broker != nil:
		f.dialect, f.options = plain{f}, d.Broker
	case d.Profile != nil:
		f.dialect, f.options = next{f, d.Profile}, d.Profile.limits()
		// Decision: the hub announces it in the CONNACK, as the standard requires.
		f.expiry = uint32(hub.Seconds(min(nextwire.DefaultSessionExpiry, f.options.SessionExpiry)))
	default:
		f.dialect, f.options = service{f}, &Options{}
	}
	return f
}

// hasCodes reports whether clients may speak MQTT 5, which has codes for every refusal.
func (f *Front) hasCodes() bool { return f.dialect.speaks(mqtt.V5) }

func (f *Front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

// Serve handles the packets of a connection until it ends.
func (f *Front) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	m := &client{Conn: c, front: f}
	c.SetPeer(m)
	return 0, m.run()
}

func (f *Front) Shutdown() error { return nil }

// A client is a connection.
type client struct {
	*hub.Conn
	front *Front
	acks  hub.AckQueue // delayed PUBACKs

	ready   atomic.Bool  // a CONNACK with code 0 was sent, so a DISCONNECT of MQTT 5 is allowed
	unacked atomic.Int32 // messages with QoS 1 that wait for their PUBACK

	// Set before ready.
	version byte
	limit   uint32 // largest packet that the client accepts; zero = no limit
	window  int    // unacknowledged messages that the client accepts
	silent  bool   // the client wants no reason strings
	session *session

	// Effective filters with their subscriptions; nil before the CONNACK. Guarded by Front.mu.
	heard map[string]subscription

	// Used only by the connection's goroutine.
	connect    *mqtt.ConnectPacket // nil before the CONNECT
	user       userName            // of a client of the service
	answered   bool                // a CONNECT was refused by CONNACK
	parted     bool                // a DISCONNECT was read that drops the will
	keep       time.Duration       // keep-alive; zero = none
	aliases    map[uint32]string   // topic aliases of the client
	spent      *faults.Injected    // an exhausted quota that closes the connection right after its CONNACK
	challenged bool                // the client was asked for its secret
	next       nextClient          // of a hub with the MQTT v5 profile
	will       *hubdata.Message
	delay      time.Duration // of the will
	late       bool          // the session publishes the will
	until      time.Time     // when its token expires; zero = no token
	expiry     *time.Timer   // ends the connection at until

	// Of reads; used only by the connection's goroutine.
	inbox   mqtt.Inbox
	begun   bool             // a PUBLISH has begun to arrive
	tear    *faults.Injected // a fault that cuts the connection inside it
	active  bool             // a packet was handled since the deadline was set
	acked   []byte           // PUBACKs to send before the next read
	unsaved bool             // messages may not be in the hub's store yet
	commits commits
}

var _ hub.Peer = (*client)(nil)

// enable sends a CONNACK or SUBACK, unless it is nil, and makes the filters of the session
// effective: a client that has the packet can rely on them, and gets nothing before it.
func (c *client) enable(packet []byte) {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	c.heard = maps.Clone(c.session.filters)
	if packet != nil {
		c.Write(packet)
	}
}

func (c *client) Matches(selector string) bool { return c.ID.Matches(selector) }

func (c *client) Present(id identity.Identity, live bool) bool {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	return live && c.front.current[id] == c
}

// MethodTarget returns the present connection if it takes the method.
func (f *Front) MethodTarget(id identity.Identity, name string) hub.MethodTarget {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.current[id]; c != nil {
		return f.dialect.methodTarget(c, name)
	}
	return nil
}

// DesiredListeners returns the present connection if it takes changes of desired properties.
func (f *Front) DesiredListeners(id identity.Identity) []hub.DesiredListener {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.current[id]; c != nil {
		if l := f.dialect.desiredListener(c); l != nil {
			return []hub.DesiredListener{l}
		}
	}
	return nil
}
