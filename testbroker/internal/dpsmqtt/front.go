// Package dpsmqtt is the provisioning service over MQTT 3.1.1.
//
// It reads and writes packets itself, because the order of PUBACK and answer matters to clients and
// sessions are short. The decoder of packets is that of mochi.
package dpsmqtt

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/mqtt"

	"github.com/mochi-mqtt/server/v2/packets"
)

// maxPacket is the size limit of a packet: a body and a topic.
const maxPacket = dps.MaxBody + 1<<16 + 16

// badPacket is the beginning of a packet with an unknown type and a length without end.
var badPacket = []byte{0x0f, 0xff, 0xff, 0xff, 0xff, 0xff}

// A Front serves MQTT 3.1.1.
type Front struct {
	dps *dps.Service

	mu      sync.Mutex
	current map[string]*client // the newest connection of each registration, by its id in lower case
}

var _ hub.Front = (*Front)(nil)

func New(s *dps.Service) *Front { return &Front{dps: s, current: make(map[string]*client)} }

func (f *Front) Below(c *hub.Conn) (net.Conn, []string) { return c.Raw, nil }

func (f *Front) MethodTarget(hub.Identity, string) hub.MethodTarget { return nil }

func (f *Front) DesiredListeners(hub.Identity) []hub.DesiredListener { return nil }

func (f *Front) Forget(string) {}

func (f *Front) Shutdown() error { return nil }

// Serve serves a connection from the CONNECT to the end.
func (f *Front) Serve(c *hub.Conn) (hubdata.Protocol, error) {
	m := &client{Conn: c, front: f, in: bufio.NewReader(c)}
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
	front *Front
	in    *bufio.Reader

	mu   sync.Mutex // guards the fields below, and the order of packets
	qos  byte       // granted for answers
	hear bool       // the client has subscribed to answers
	last uint16     // packet id of the last answer

	// Used only by the connection's goroutine.
	who       *dps.Client // nil before the CONNECT
	keepAlive time.Duration
	answered  bool // a CONNECT was refused by CONNACK
}

var _ hub.Peer = (*client)(nil)

func (c *client) Matches(selector string) bool { return c.ID.Matches(selector) }

func (c *client) Present(hub.Identity, bool) bool { return false }

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
	for {
		pk, err := c.read()
		if err != nil {
			return err
		}
		if c.Mode.Load() != hub.Open {
			return nil
		}
		c.SetDeadline(time.Time{}) // it limits the client, not the hub
		if over, err := c.handle(pk); over || err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(c.keepAlive * 3 / 2)) // the CONNECT has set it
	}
}

// read reads and decodes a packet.
func (c *client) read() (pk packets.Packet, err error) {
	first, err := c.in.ReadByte()
	if err != nil {
		return pk, err
	}
	if c.who == nil {
		if err := mqtt.CheckFirst(first); err != nil {
			return pk, err
		}
	}
	if err := pk.FixedHeader.Decode(first); err != nil {
		return pk, err
	}
	n, shift := 0, 0
	for {
		b, err := c.in.ReadByte()
		if err != nil {
			return pk, err
		}
		n |= int(b&0x7f) << shift
		if shift += 7; b < 0x80 {
			break
		}
		if shift == 28 {
			return pk, errors.New("length of a packet has more than four bytes")
		}
	}
	if n > maxPacket {
		return pk, fmt.Errorf("packet of %d bytes, at most %d are allowed", n, maxPacket)
	}
	pk.FixedHeader.Remaining = n
	body := make([]byte, n)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return pk, err
	}
	return pk, decode(&pk, body)
}

func decode(pk *packets.Packet, body []byte) error {
	pk.ProtocolVersion = 4
	switch pk.FixedHeader.Type {
	case packets.Connect:
		return pk.ConnectDecode(body)
	case packets.Publish:
		return pk.PublishDecode(body)
	case packets.Subscribe:
		return pk.SubscribeDecode(body)
	case packets.Unsubscribe:
		return pk.UnsubscribeDecode(body)
	case packets.Puback, packets.Pingreq, packets.Disconnect:
		return nil
	}
	return fmt.Errorf("packet of type %d", pk.FixedHeader.Type)
}

// handle handles a packet. over ends the connection in order.
func (c *client) handle(pk packets.Packet) (over bool, err error) {
	switch pk.FixedHeader.Type {
	case packets.Connect:
		return false, c.connect(pk)
	case packets.Publish:
		return false, c.publish(pk)
	case packets.Subscribe:
		return false, c.subscribe(pk)
	case packets.Unsubscribe:
		c.unsubscribe(pk)
	case packets.Pingreq:
		if in := c.Hub.Faults.Take(fault.SwallowPingresp, c.ID); in != nil {
			c.Hub.Happened(in, c.Conn)
		} else {
			c.send(packets.Pingresp<<4, nil)
		}
	case packets.Disconnect:
		return true, hub.ErrDisconnect
	}
	return false, nil
}

// send writes a packet.
func (c *client) send(first byte, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendLocked(first, body)
}

func (c *client) sendLocked(first byte, body []byte) {
	p := binary.AppendUvarint([]byte{first}, uint64(len(body))) // the encodings are the same up to four bytes
	c.Write(append(p, body...))
}

// subscribe grants the filter of answers, and no other.
func (c *client) subscribe(pk packets.Packet) error {
	if pk.PacketID == 0 || len(pk.Filters) == 0 {
		return errors.New("SUBSCRIBE without a packet id or a filter")
	}
	h := c.Hub
	if in := h.Faults.Take(fault.DropOnSubscribe, c.ID); in != nil {
		h.Happened(in, c.Conn)
		c.CutFor(hub.FaultError(fault.DropOnSubscribe))
		return hub.FaultError(fault.DropOnSubscribe)
	}
	refused := h.Faults.Take(fault.RefuseSubscribe, c.ID)
	if refused != nil {
		h.Happened(refused, c.Conn)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	answer := []byte{byte(pk.PacketID >> 8), byte(pk.PacketID)}
	for _, s := range pk.Filters {
		switch {
		case refused != nil:
			answer = append(answer, refused.Fault.Code)
		case s.Filter != answerFilter || s.Qos > 2:
			answer = append(answer, 0x80)
		default:
			c.hear, c.qos = true, min(s.Qos, 1)
			answer = append(answer, c.qos)
		}
	}
	if in := h.Faults.Take(fault.SwallowSuback, c.ID); in != nil {
		h.Happened(in, c.Conn)
		return nil
	}
	c.sendLocked(packets.Suback<<4, answer)
	return nil
}

func (c *client) unsubscribe(pk packets.Packet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range pk.Filters {
		if s.Filter == answerFilter {
			c.hear = false
		}
	}
	c.sendLocked(packets.Unsuback<<4, []byte{byte(pk.PacketID >> 8), byte(pk.PacketID)})
}
