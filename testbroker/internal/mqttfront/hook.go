package mqttfront

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"

	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// CONNACK return codes [MQTT-3.2.2.3].
const (
	refusedVersion     = 1
	refusedIdentifier  = 2
	refusedUnavailable = 3
	refusedCredentials = 4
	refusedAuthority   = 5
)

// maxKeepAlive is in seconds; one and a half of it is the longest that the hub waits for a packet.
const maxKeepAlive = 1178

// nothing stands for a packet that the hub has handled: a PUBACK that answers no packet, which
// the broker ignores. There is no other way to keep it from answering and routing a PUBLISH that
// does not cost more.
var nothing = packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}}

// hook is the hub as the broker sees it. Every packet goes through OnPacketRead before the broker
// does anything with it; there the connection is judged, because at later places the broker answers
// by itself, and not as the hub would.
type hook struct {
	mochi.HookBase
	front *Front
}

// ID names the hook.
func (k *hook) ID() string { return "hub" }

// Provides says which methods the broker shall call.
func (k *hook) Provides(b byte) bool {
	return slices.Contains([]byte{
		mochi.OnPacketRead, mochi.OnConnectAuthenticate, mochi.OnSessionEstablish, mochi.OnPacketEncode,
		mochi.OnSessionEstablished,
	}, b)
}

// OnPacketRead judges a packet. To return ErrRejectPacket closes the connection.
func (k *hook) OnPacketRead(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	c, ok := cl.Net.Conn.(*client)
	if !ok {
		return pk, packets.ErrRejectPacket
	}
	if c.Mode.Load() != hub.Open {
		c.drain() // the packet was read before the connection changed its mode
		return pk, packets.ErrRejectPacket
	}
	var err error
	switch pk.FixedHeader.Type {
	case packets.Connect:
		pk, err = k.front.connect(c, pk)
	case packets.Publish:
		if strings.HasPrefix(pk.TopicName, requestTopics) {
			err = k.front.request(c, pk)
			pk = nothing
			break
		}
		var m hub.Message
		if m, err = k.front.inspect(c, pk); err == nil {
			k.front.publish(c, m)
			pk = nothing
		}
	case packets.Puback:
		k.front.complete(c, pk.PacketID)
		pk = nothing
	case packets.Subscribe:
		err = k.front.subscribe(c, pk)
		pk = nothing
	case packets.Unsubscribe:
		err = k.front.unsubscribe(c, pk)
		pk = nothing
	case packets.Pingreq:
		if in := k.front.hub.Faults.Take(hub.SwallowPingresp, c.ID); in != nil {
			k.front.hub.Happened(in, c.Conn)
			pk = nothing
		}
	case packets.Disconnect:
		c.parted = true
	}
	if err != nil {
		c.SetCause(err)
		return pk, packets.ErrRejectPacket
	}
	return pk, nil
}

// OnConnectAuthenticate agrees: who comes so far was let in by connect.
func (k *hook) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }

// OnSessionEstablish runs just before the CONNACK.
func (k *hook) OnSessionEstablish(cl *mochi.Client, _ packets.Packet) {
	c := cl.Net.Conn.(*client)
	h := k.front.hub
	h.Mu.Lock()
	c.Live = true
	h.Mu.Unlock()
	h.Event(hub.Event{Kind: hub.Connected}, c.Conn)
	h.Changed.Wake()
}

// OnPacketEncode says in the CONNACK whether the session was kept, of which the broker knows
// nothing.
func (k *hook) OnPacketEncode(cl *mochi.Client, pk packets.Packet) packets.Packet {
	if c, ok := cl.Net.Conn.(*client); ok && pk.FixedHeader.Type == packets.Connack {
		pk.SessionPresent = c.present && pk.ReasonCode == 0
	}
	return pk
}

// OnSessionEstablished runs just after the CONNACK.
func (k *hook) OnSessionEstablished(cl *mochi.Client, _ packets.Packet) {
	c := cl.Net.Conn.(*client)
	if !c.until.IsZero() {
		c.expiry = time.AfterFunc(c.until.Sub(k.front.hub.Now()), c.expire)
	}
	if c.spent != nil {
		k.front.hub.Happened(c.spent, c.Conn)
		c.CloseGracefully(hub.ErrQuota)
		return
	}
	k.front.hub.Garbage(hub.GarbageOnConnect, c.Conn, badPacket)
	k.front.attach(c)
}

// connect judges a CONNECT packet. What it lets pass, the broker accepts.
func (f *Front) connect(c *client, pk packets.Packet) (packets.Packet, error) {
	h := f.hub
	if c.known {
		return pk, errors.New("second CONNECT [MQTT-3.1.0-2]")
	}
	c.known = true
	switch name := string(pk.Connect.ProtocolName); {
	case name != "MQTT" && name != "MQIsdp":
		return pk, fmt.Errorf("protocol %q", name)
	case name != "MQTT" || pk.ProtocolVersion != 4:
		return pk, f.refuse(c, refusedVersion, fmt.Errorf("protocol %s level %d, want MQTT 4", name, pk.ProtocolVersion))
	case pk.ReservedBit != 0, !pk.Connect.WillFlag && (pk.Connect.WillQos != 0 || pk.Connect.WillRetain):
		return pk, errors.New("connect flags that do not go together [MQTT-3.1.2-3]")
	}

	user, userErr := parseUserName(string(pk.Connect.Username))
	h.Mu.Lock()
	c.ID = user.id
	h.Mu.Unlock()
	if err := f.connectFaults(c, user.id); err != nil {
		return pk, err
	}
	switch {
	case userErr != nil:
		return pk, f.refuse(c, refusedCredentials, userErr)
	case pk.Connect.ClientIdentifier != user.id.String():
		return pk, f.refuse(c, refusedIdentifier, fmt.Errorf("client id %q is not that of the user name, %q",
			pk.Connect.ClientIdentifier, user.id))
	}
	code, err := f.authenticate(c, user, string(pk.Connect.Password))
	if err != nil {
		return pk, f.refuse(c, code, err)
	}
	if c.will, err = readWill(c, user.id, &pk); err != nil {
		return pk, err
	}
	if err := f.takeOver(c, user.id); err != nil {
		return pk, err
	}
	h.AnnounceModel(user.id, user.param("model-id"))
	f.resume(c, pk.Connect.Clean)
	pk.Connect.Clean = true // sessions are the hub's, and the broker shall keep none
	if k := pk.Connect.Keepalive; k == 0 || k > maxKeepAlive {
		pk.Connect.Keepalive = maxKeepAlive
	}
	return pk, nil
}

// authenticate checks the credentials of a client: its token, or without one its certificate. The
// code is that of a refusal.
func (f *Front) authenticate(c *client, user userName, password string) (code byte, err error) {
	h := f.hub
	if password == "" {
		var chain []*x509.Certificate
		if c.TLS != nil {
			chain = c.TLS.ConnectionState().PeerCertificates
		}
		h.Mu.Lock()
		defer h.Mu.Unlock()
		return refusedAuthority, h.CertifiedLocked(user.host, user.id, chain)
	}
	tok, err := hub.ParseToken(password)
	if err != nil {
		return refusedCredentials, err
	}
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if err := h.AuthorizeLocked(user.host, user.id, tok); err != nil {
		return refusedAuthority, err
	}
	c.until = tok.Deadline(h.Life)
	return 0, nil
}

// takeOver makes c the connection of its identity and ends the one before. It waits until that is
// really gone, so that the broker never sees two of them.
func (f *Front) takeOver(c *client, id hub.Identity) error {
	h := f.hub
	h.Mu.Lock()
	device := h.Registry[hub.Identity{Device: id.Device}]
	if device == nil || device.Disabled || h.Registry[id] == nil {
		h.Mu.Unlock()
		return hub.ErrRemoved // since it was authorized
	}
	before := f.current[id]
	f.current[id] = c
	h.Mu.Unlock()
	if before != nil {
		h.DisplaceCalls(before.Conn, id)
		before.CloseFor(hub.ErrReplaced)
		<-before.Done
	}
	return nil
}

// refuse answers a CONNECT with a code and ends the connection. It writes the packet itself, for
// the broker knows but a few of the codes.
func (f *Front) refuse(c *client, code byte, why error) error {
	h := f.hub
	c.answered = true
	c.Write([]byte{packetConnack << 4, 2, 0, code})
	c.CloseGracefully(why)
	h.Event(hub.Event{Kind: hub.Refused, Code: code, Err: why}, c.Conn)
	c.drain()
	return why
}

// readWill takes the will out of the packet, because the broker would publish it to others. The hub
// keeps it as the message to be logged.
func readWill(c *client, id hub.Identity, pk *packets.Packet) (*hub.Message, error) {
	w := &pk.Connect
	if !w.WillFlag {
		return nil, nil
	}
	if w.WillQos > 1 {
		return nil, fmt.Errorf("will with QoS %d", w.WillQos)
	}
	m, err := parseTelemetry(id, w.WillTopic)
	if err != nil {
		return nil, fmt.Errorf("will: %w", err)
	}
	m.Properties = append(m.Properties, hub.Property{Name: "iothub-MessageType", Value: "Will"})
	m.Protocol, m.Body, m.QoS, m.Connection = hub.MQTT, w.WillPayload, w.WillQos, c.Number
	w.WillFlag, w.WillQos, w.WillRetain, w.WillTopic, w.WillPayload = false, 0, false, "", nil
	return &m, nil
}

// inspect reads a PUBLISH. An error closes the connection: 3.1.1 has no other answer.
func (f *Front) inspect(c *client, pk packets.Packet) (hub.Message, error) {
	if err := checkPublish(pk); err != nil {
		return hub.Message{}, err
	}
	m, err := parseTelemetry(c.ID, pk.TopicName)
	if err != nil {
		return hub.Message{}, err
	}
	m.Protocol = hub.MQTT
	m.Body, m.QoS, m.PacketID, m.Dup, m.Connection = pk.Payload, pk.FixedHeader.Qos, pk.PacketID, pk.FixedHeader.Dup,
		c.Number
	if n := hub.SizeOf(&m); n > hub.MaxMessage {
		return hub.Message{}, fmt.Errorf("message of %d bytes, at most %d are allowed", n, hub.MaxMessage)
	}
	if pk.FixedHeader.Retain {
		m.Properties = append(m.Properties, hub.Property{Name: "mqtt-retain", Value: "true"})
	}
	return m, nil
}
