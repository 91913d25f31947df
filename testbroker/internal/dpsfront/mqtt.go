package dpsfront

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"
)

// maxPacket is the size limit of a packet: a body and a topic.
const maxPacket = dps.MaxBody + 1<<16 + 16

// badPacket is the beginning of a packet with an unknown type and a length without end.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// An mqttFront serves MQTT 3.1.1. It reads and writes packets itself, because the order of PUBACK
// and answer matters to clients and sessions are short.
type mqttFront struct {
	front

	mu      sync.Mutex
	current map[string]*client // the newest connection of each registration, by its id in lower case
}

// Serve serves a connection from the CONNECT to the end.
func (f *mqttFront) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	m := &client{Conn: c, front: f}
	c.SetPeer(m)
	err := m.serve()
	if c.Mode.Load() != hub.Open { // the hub has ended it, or made it half-open
		c.Drain()
	}
	return 0, err
}

// A client is a connection.
type client struct {
	*hub.Conn
	front *mqttFront

	mu   sync.Mutex // guards the fields below, and the order of packets
	qos  byte       // granted for answers
	hear bool       // the client has subscribed to answers
	last uint16     // packet id of the last answer

	// Used only by the connection's goroutine.
	who       *dps.Client // nil before the CONNECT
	keepAlive time.Duration
	in        mqtt.Inbox
	answered  bool // a CONNECT was refused by CONNACK
}

var _ hub.Peer = (*client)(nil)

func (c *client) Matches(selector string) bool { return c.ID.Matches(selector) }

func (c *client) Present(identity.Identity, bool) bool { return false }

func (c *client) Expel(_ string, cause error, _ string) { c.CloseFor(cause) }

func (c *client) Leave() {
	c.front.mu.Lock()
	defer c.front.mu.Unlock()
	if c.who != nil && c.front.current[strings.ToLower(c.who.ID)] == c {
		delete(c.front.current, strings.ToLower(c.who.ID))
	}
}

func (c *client) Finish(cause error, live, _ bool) {
	switch {
	case live:
		c.Hub.Event(event.Event{Kind: event.Disconnected, Err: cause}, c.Conn)
	case !c.answered:
		c.Hub.Unserved(c.Conn, cause)
	}
}

// serve reads packets until the connection ends.
func (c *client) serve() error {
	check := mqtt.CheckFirst
	for {
		first, body, err := c.in.Packet(c.Conn, maxPacket, check)
		if err != nil {
			return err
		}
		if c.Mode.Load() != hub.Open {
			return nil
		}
		check = nil
		c.SetDeadline(time.Time{}) // it limits the client, not the hub
		if err := c.handle(first, body); err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(c.keepAlive * 3 / 2)) // the CONNECT has set it
	}
}

// handle handles a packet. An error ends the connection.
func (c *client) handle(first byte, body []byte) error {
	if err := mqtt.CheckFlags(first); err != nil {
		return err
	}
	switch typ := first >> 4; typ {
	case mqtt.Connect:
		k, err := mqtt.DecodeConnect(body)
		return c.connect(k, err)
	case mqtt.Publish:
		k, err := mqtt.DecodePublish(mqtt.V311, first, body)
		if err != nil {
			return err
		}
		return c.publish(k)
	case mqtt.Subscribe, mqtt.Unsubscribe:
		s, err := mqtt.DecodeSubscribe(mqtt.V311, first, body)
		if err != nil {
			return err
		}
		if typ == mqtt.Subscribe {
			return c.subscribe(s)
		}
		c.unsubscribe(s)
		return nil
	case mqtt.Puback:
		return nil
	case mqtt.Pingreq:
		if c.Fault(fault.SwallowPingresp) == nil {
			c.send(mqtt.EncodePingresp())
		}
		return nil
	case mqtt.Disconnect:
		return hub.ErrDisconnect
	default:
		return fmt.Errorf("packet of type %d", typ)
	}
}

// send writes a packet.
func (c *client) send(packet []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Write(packet)
}

// subscribe grants the filter of answers, and no other.
func (c *client) subscribe(s mqtt.SubscribePacket) error {
	if c.Fault(fault.DropOnSubscribe) != nil {
		c.CutFor(hub.FaultError(fault.DropOnSubscribe))
		return hub.FaultError(fault.DropOnSubscribe)
	}
	refused := c.Fault(fault.RefuseSubscribe)
	c.mu.Lock()
	defer c.mu.Unlock()
	var codes []byte
	for _, f := range s.Filters {
		switch {
		case refused != nil:
			codes = append(codes, refused.Fault.Code)
		case f.Name != answerFilter:
			codes = append(codes, 0x80)
		default:
			c.hear, c.qos = true, min(f.QoS, 1)
			codes = append(codes, c.qos)
		}
	}
	if c.Fault(fault.SwallowSuback) == nil {
		c.Write(mqtt.EncodeSuback(mqtt.Suback, mqtt.SubackBody(mqtt.V311, s.ID, nil, codes)))
	}
	return nil
}

func (c *client) unsubscribe(s mqtt.SubscribePacket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range s.Filters {
		c.hear = c.hear && f.Name != answerFilter
	}
	c.Write(mqtt.EncodeSuback(mqtt.Unsuback, mqtt.SubackBody(mqtt.V311, s.ID, nil, nil)))
}
