// Package brokerfront makes the hub a plain MQTT broker: devices speak MQTT 3.1.1 or MQTT 5 on
// topics of a template, and the hub's log, queues and faults are the same as for the service's
// topics.
package brokerfront

import (
	"bufio"
	"cmp"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// maxPacket is the limit of a packet that BrokerOptions does not lower: body, topic, properties.
const maxPacket = hubdata.MaxMessage + 2<<16

// badPacket is the beginning of a packet with an unknown type and a length without end.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// A Front serves MQTT on the topics of a plain broker.
type Front struct {
	hub     *hub.Hub
	options *Options

	mu       sync.Mutex                // guards the fields below and the sessions
	current  map[hub.Identity]*client  // the newest connection of each identity
	sessions map[hub.Identity]*session // of connected clients, and those that are kept
}

var _ hub.Front = (*Front)(nil)

// New makes the front of a hub. The options have defaults.
func New(h *hub.Hub, o *Options) *Front {
	return &Front{hub: h, options: o, current: make(map[hub.Identity]*client), sessions: make(map[hub.Identity]*session)}
}

func (f *Front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

// Serve reads the packets of a connection until it ends.
func (f *Front) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	m := &client{Conn: c, front: f, in: bufio.NewReaderSize(c, 4096)}
	c.SetPeer(m)
	return 0, m.run()
}

func (f *Front) Shutdown() error { return nil }

// MethodTarget returns nil: plain topics have no methods.
func (f *Front) MethodTarget(hub.Identity, string) hub.MethodTarget { return nil }

// DesiredListeners returns none: plain topics have no twins.
func (f *Front) DesiredListeners(hub.Identity) []hub.DesiredListener { return nil }

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

	// Used only by the connection's goroutine.
	in         *bufio.Reader
	connect    *mqtt.ConnectPacket // nil before the CONNECT
	answered   bool                // a CONNECT was refused by CONNACK
	parted     bool                // a DISCONNECT was read that drops the will
	keep       time.Duration       // keep-alive; zero = none
	aliases    map[uint32]string   // topic aliases of the client
	spent      *hub.Injected       // an exhausted quota that closes the connection right after its CONNACK
	tear       *hub.Injected       // a fault that cuts the connection inside the packet being read
	challenged bool                // the client was asked for its secret
	will       *hubdata.Message
	delay      time.Duration // of the will
	late       bool          // the session publishes the will
	until      time.Time     // when its token expires; zero = no token
	expiry     *time.Timer   // ends the connection at until
}

var _ hub.Peer = (*client)(nil)

// run reads packets until the connection ends, and returns why.
func (c *client) run() error {
	limit := maxPacket
	if n := c.front.options.MaximumPacketSize; n > 0 {
		limit = int(n)
	}
	for {
		if c.Mode.Load() != hub.Open {
			return c.Drain()
		}
		c.await()
		if first, err := c.in.Peek(1); err == nil && c.connect == nil {
			if err := mqtt.CheckFirst(first[0]); err != nil {
				return c.fail(err)
			}
		}
		first, body, err := mqtt.ReadFrame(c.in, limit, c.begins)
		if c.Mode.Load() != hub.Open {
			return cmp.Or(err, c.Drain()) // the packet was read before the mode changed
		}
		if err == nil {
			err = c.handle(first, body)
		}
		if err != nil {
			return c.fail(err)
		}
	}
}

// await sets the deadline for the next packet: one and a half times the keep-alive
// [MQTT-3.1.2-24].
func (c *client) await() {
	switch {
	case !c.ready.Load(): // the hub has set a deadline for the CONNECT
	case c.keep == 0:
		c.SetDeadline(time.Time{})
	default:
		c.SetDeadline(time.Now().Add(c.keep + c.keep/2))
	}
}

// begins is called with the first byte of each packet. It reports whether a fault cuts the
// connection inside the packet.
func (c *client) begins(first byte) bool {
	if first>>4 != mqtt.Publish || !c.ready.Load() {
		return false
	}
	c.tear = c.Hub.Faults.Take(fault.DropDuringPublish, c.ID)
	return c.tear != nil
}

// handle handles a packet. An error ends the connection.
func (c *client) handle(first byte, body []byte) error {
	typ := first >> 4
	if err := mqtt.CheckFlags(first); err != nil {
		return err
	}
	switch {
	case typ == mqtt.Connect:
		return c.handleConnect(body)
	case typ == mqtt.Auth && c.connect != nil && c.version == mqtt.V5:
		return c.handleAuth(body)
	case !c.ready.Load():
		return errors.New("packet before the CONNACK [MQTT-3.1.0-1]")
	}
	switch typ {
	case mqtt.Publish:
		return c.handlePublish(first, body)
	case mqtt.Puback, mqtt.Pubrec, mqtt.Pubcomp:
		return c.handleAck(first, body)
	case mqtt.Subscribe:
		return c.handleSubscribe(first, body)
	case mqtt.Unsubscribe:
		return c.handleUnsubscribe(first, body)
	case mqtt.Pingreq:
		if in := c.Hub.Faults.Take(fault.SwallowPingresp, c.ID); in != nil {
			c.Hub.Happened(in, c.Conn)
			return nil
		}
		c.Write(mqtt.EncodePingresp())
		return nil
	case mqtt.Disconnect:
		return c.handleDisconnect(first, body)
	}
	return &mqtt.Error{Code: mqtt.ProtocolError, Text: "packet that only a server sends"}
}

// fail ends the connection for an error of the client or of the network, and returns the cause.
func (c *client) fail(err error) error {
	var wrong *mqtt.Error
	var late net.Error
	switch {
	case errors.Is(err, mqtt.ErrTorn):
		err = hub.FaultError(fault.DropDuringPublish)
		c.Hub.Happened(c.tear, c.Conn)
		c.tear = nil
		c.CutFor(err)
		return err
	case errors.As(err, &wrong):
		c.end(wrong.Code, err, nil)
	case errors.As(err, &late) && late.Timeout() && c.ready.Load():
		c.SetDeadline(time.Now().Add(hub.CloseLimit)) // else the DISCONNECT is late too
		c.end(mqtt.KeepAliveTimeout, err, nil)
	default:
		c.SetCause(err)
		return err
	}
	c.Drain()
	return err
}

// end ends the connection in order. A client that speaks MQTT 5 gets a DISCONNECT before, with the
// text and the server reference of about, or else with those of the cause. Any goroutine may call
// it.
func (c *client) end(code byte, cause error, about *fault.Fault) {
	if c.ready.Load() && c.version == mqtt.V5 {
		text, reference := cause.Error(), ""
		if about != nil {
			text, reference = about.Description, about.ServerReference
		}
		c.Write(mqtt.EncodeEnd(mqtt.Disconnect, mqtt.EndPacket{Code: code, Properties: c.reason(text, reference)}))
	}
	c.CloseGracefully(cause)
}

// reason returns the properties of a refusal.
func (c *client) reason(text, reference string) (all mqtt.Properties) {
	if text != "" && !c.silent {
		all = append(all, mqtt.Property{ID: mqtt.ReasonString, Text: text})
	}
	if reference != "" {
		all = append(all, mqtt.Property{ID: mqtt.ServerReference, Text: reference})
	}
	return all
}

// displace ends the connection from outside. A half-open connection just ends, because its client
// would not notice more.
func (c *client) displace(code byte, cause error) {
	if c.Mode.Load() == hub.Open {
		c.end(code, cause, nil)
		return
	}
	c.CloseFor(cause)
}

// expire ends the connection when its token expires. A half-open connection stays, because its
// client would not notice.
func (c *client) expire() {
	if c.Mode.Load() != hub.Silent {
		c.end(mqtt.MaximumConnectTime, hub.ErrTokenExpired, nil)
	}
}

// handleDisconnect handles a DISCONNECT. It drops the will, unless the client says otherwise.
func (c *client) handleDisconnect(first byte, body []byte) error {
	d, err := mqtt.DecodeEnd(c.version, first, body)
	if err != nil {
		return err
	}
	if p, ok := d.Properties.Get(mqtt.SessionExpiry); ok {
		if !c.prolong(p.Number) {
			return &mqtt.Error{Code: mqtt.ProtocolError, Text: "session expiry set by DISCONNECT after 0 [MQTT-3.14.2-2]"}
		}
	}
	c.parted = d.Code != mqtt.WithWill
	return hub.ErrDisconnect
}

func (c *client) Matches(selector string) bool { return c.ID.Matches(selector) }

func (c *client) Present(id hub.Identity, live bool) bool {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	return live && c.front.current[id] == c
}

func (c *client) Expel(_ string, cause error, _ string) {
	code := byte(mqtt.AdministrativeAction)
	if errors.Is(cause, hub.ErrDisabled) || errors.Is(cause, hub.ErrRemoved) {
		code = mqtt.NotAuthorized
	}
	c.displace(code, cause)
}

// Finish publishes the will, unless the client dropped it or it is delayed, and reports the end of
// the connection.
func (c *client) Finish(cause error, live, closed bool) {
	h := c.Hub
	if c.expiry != nil {
		c.expiry.Stop()
	}
	if c.tear != nil {
		h.Faults.Release(c.tear)
	}
	switch {
	case !live || c.will == nil || c.parted || closed:
	case c.late:
		c.front.delayWill(c.session, c.delay)
	default:
		c.front.storeWill(*c.will)
	}
	switch {
	case live:
		h.Event(event.Event{Kind: event.Disconnected, Err: cause}, c.Conn)
	case !c.answered:
		h.Unserved(c.Conn, cause)
	}
}
