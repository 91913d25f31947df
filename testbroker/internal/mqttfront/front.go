package mqttfront

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	mochi "github.com/mochi-mqtt/server/v2"
)

const (
	listenerName  = "hub" // mochi's name of the listener
	writesPending = 256   // packets queued for one connection; mochi allocates room for each
)

// badPacket is the beginning of a packet with an unknown type and a length without end.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// A Front serves MQTT 3.1.1.
type Front struct {
	hub    *hub.Hub
	server *mochi.Server

	mu       sync.Mutex                // guards the fields below, client.heard and sessions
	current  map[hub.Identity]*client  // the newest connection of each identity
	sessions map[hub.Identity]*session // kept sessions
}

var _ hub.Front = (*Front)(nil)

func New(h *hub.Hub) (*Front, error) {
	f := &Front{hub: h, current: make(map[hub.Identity]*client), sessions: make(map[hub.Identity]*session)}
	limits := mochi.NewDefaultServerCapabilities()
	limits.MaximumClientWritesPending = writesPending
	limits.MaximumPacketSize = maxPacket
	limits.RetainAvailable = 0
	f.server = mochi.New(&mochi.Options{
		Capabilities:           limits,
		Logger:                 slog.New(slog.DiscardHandler),
		SysTopicResendInterval: 3600,

		ClientNetReadBufferSize: leastRead, // the front has its own
	})
	return f, f.server.AddHook(&hook{front: f}, nil)
}

func (f *Front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

// Serve runs a connection in mochi until it ends.
func (f *Front) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	m := &client{Conn: c, front: f}
	c.SetPeer(m)
	return 0, f.server.EstablishConnection(listenerName, m)
}

// Shutdown ends mochi's hooks; mochi has no listener of the hub. A second call would panic.
func (f *Front) Shutdown() error { return f.server.Close() }

// MethodTarget returns the present connection if it has subscribed to the method.
func (f *Front) MethodTarget(id hub.Identity, name string) hub.MethodTarget {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.current[id]; c != nil && c.hearsLocked(methodFilter, methodTopic+methodSegment(name)+"/#") {
		return methodTarget{c}
	}
	return nil
}

// DesiredListeners returns the present connection if it has subscribed to desired properties.
func (f *Front) DesiredListeners(id hub.Identity) []hub.DesiredListener {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.current[id]; c != nil && c.hearsLocked(desiredFilter) {
		return []hub.DesiredListener{desiredListener{c}}
	}
	return nil
}

// A client is a connection over MQTT, between mochi and the network. Faults inside a packet act
// here.
type client struct {
	*hub.Conn
	front *Front
	acks  hub.AckQueue // delayed PUBACKs

	// Effective filters with their QoS; nil before the CONNACK. Guarded by Front.mu.
	heard map[string]byte

	// Used only by the connection's goroutine.
	known    bool             // a CONNECT was read
	issues   bool             // its version of the API has requests for certificates
	answered bool             // a CONNECT was refused by CONNACK
	parted   bool             // a DISCONNECT was read
	session  *session         // set by the CONNECT
	present  bool             // session is kept from an earlier connection
	spent    *hub.Injected    // an exhausted quota that closes the connection right after its CONNACK
	will     *hubdata.Message // logged when the connection ends without a DISCONNECT
	until    time.Time        // when its token expires; zero = no token
	expiry   *time.Timer      // ends the connection at until

	// Of reads; used only by the connection's goroutine.
	inbox   inbox
	pass    int           // bytes of the packet in front that are for the broker
	begun   bool          // a PUBLISH has begun to arrive
	tear    *hub.Injected // a fault that cuts the connection inside it
	active  bool          // a PUBLISH was handled since the deadline was set
	silence time.Duration // how long the client may be silent
	acked   []byte        // PUBACKs to send before the next read
	unsaved bool          // messages may not be in the hub's store yet
	commits commits
}

var (
	_ net.Conn = (*client)(nil)
	_ hub.Peer = (*client)(nil)
)

// Write sends packets. Together with a CONNACK or SUBACK it enables the session's filters: a client
// that has the packet can rely on them, and gets nothing before it.
func (c *client) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0]>>4 == packetConnack || p[0]>>4 == packetSuback) && c.Mode.Load() == hub.Open {
		c.front.mu.Lock()
		defer c.front.mu.Unlock()
		if c.session != nil && c.spent == nil {
			c.heard = maps.Clone(c.session.filters)
		}
	}
	return c.Conn.Write(p)
}

// expire ends the connection when its token expires. A half-open connection stays, because its
// client would not notice.
func (c *client) expire() {
	if c.Mode.Load() != hub.Silent {
		c.CloseFor(hub.ErrTokenExpired)
	}
}

func (c *client) Matches(selector string) bool { return c.ID.Matches(selector) }

func (c *client) Present(id hub.Identity, live bool) bool {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	return live && c.front.current[id] == c
}

func (c *client) Expel(_ string, cause error, _ string) { c.CloseFor(cause) }

func (c *client) Leave() {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	if c.front.current[c.ID] == c {
		delete(c.front.current, c.ID)
	}
}

// Finish logs the will, unless the client sent a DISCONNECT, and reports the end of the connection.
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
		cause = hub.ErrDisconnect
	}
	switch {
	case live:
		h.Event(event.Event{Kind: event.Disconnected, Err: cause}, c.Conn)
	case !c.answered:
		h.Unserved(c.Conn, cause)
	}
}
