package testbroker

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

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

// nothing stands for a packet that the hub has dealt with: a PUBACK that answers no packet, which
// the broker ignores. There is no other way to keep it from answering and routing a PUBLISH that
// does not cost more.
var nothing = packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}}

// hook is the hub as the broker sees it. Every packet goes through OnPacketRead before the broker
// does anything with it; there the connection is judged, because at later places the broker answers
// by itself, and not as the hub would.
type hook struct {
	mochi.HookBase
	front *mqttFront
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
	c, ok := cl.Net.Conn.(*mqttConn)
	if !ok {
		return pk, packets.ErrRejectPacket
	}
	if c.mode.Load() != open {
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
		var m Message
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
		if in := k.front.hub.faults.take(SwallowPingresp, c.id); in != nil {
			k.front.hub.happened(in, c.conn)
			pk = nothing
		}
	case packets.Disconnect:
		c.parted = true
	}
	if err != nil {
		c.blame(err)
		return pk, packets.ErrRejectPacket
	}
	return pk, nil
}

// OnConnectAuthenticate agrees: who comes so far was let in by connect.
func (k *hook) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }

// OnSessionEstablish runs just before the CONNACK.
func (k *hook) OnSessionEstablish(cl *mochi.Client, _ packets.Packet) {
	c := cl.Net.Conn.(*mqttConn)
	h := k.front.hub
	h.mu.Lock()
	c.live = true
	h.mu.Unlock()
	h.event(Event{Kind: Connected}, c.conn)
	h.changed.wake()
}

// OnPacketEncode says in the CONNACK whether the session was kept, of which the broker knows
// nothing.
func (k *hook) OnPacketEncode(cl *mochi.Client, pk packets.Packet) packets.Packet {
	if c, ok := cl.Net.Conn.(*mqttConn); ok && pk.FixedHeader.Type == packets.Connack {
		pk.SessionPresent = c.present && pk.ReasonCode == 0
	}
	return pk
}

// OnSessionEstablished runs just after the CONNACK.
func (k *hook) OnSessionEstablished(cl *mochi.Client, _ packets.Packet) {
	c := cl.Net.Conn.(*mqttConn)
	if !c.until.IsZero() {
		c.expiry = time.AfterFunc(c.until.Sub(k.front.hub.now()), c.expire)
	}
	if c.spent != nil {
		k.front.hub.happened(c.spent, c.conn)
		c.farewell(ErrQuota)
		return
	}
	k.front.hub.garbage(GarbageOnConnect, c.conn, badPacket)
	k.front.attach(c)
}

// connect judges a CONNECT packet. What it lets pass, the broker accepts.
func (f *mqttFront) connect(c *mqttConn, pk packets.Packet) (packets.Packet, error) {
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
	h.mu.Lock()
	c.id = user.id
	h.mu.Unlock()
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
	h.announceModel(user.id, user.param("model-id"))
	f.resume(c, pk.Connect.Clean)
	pk.Connect.Clean = true // sessions are the hub's, and the broker shall keep none
	if k := pk.Connect.Keepalive; k == 0 || k > maxKeepAlive {
		pk.Connect.Keepalive = maxKeepAlive
	}
	return pk, nil
}

// authenticate checks the credentials of a client: its token, or without one its certificate. The
// code is that of a refusal.
func (f *mqttFront) authenticate(c *mqttConn, user userName, password string) (code byte, err error) {
	h := f.hub
	if password == "" {
		var chain []*x509.Certificate
		if c.tls != nil {
			chain = c.tls.ConnectionState().PeerCertificates
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return refusedAuthority, h.certifiedLocked(user.host, user.id, chain)
	}
	tok, err := parseToken(password)
	if err != nil {
		return refusedCredentials, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.authorizeLocked(user.host, user.id, tok); err != nil {
		return refusedAuthority, err
	}
	c.until = tok.deadline(h.life)
	return 0, nil
}

// takeOver makes c the connection of its identity and ends the one before. It waits until that is
// really gone, so that the broker never sees two of them.
func (f *mqttFront) takeOver(c *mqttConn, id identity) error {
	h := f.hub
	h.mu.Lock()
	device := h.registry[identity{device: id.device}]
	if device == nil || device.disabled || h.registry[id] == nil {
		h.mu.Unlock()
		return ErrRemoved // since it was authorized
	}
	before := f.current[id]
	f.current[id] = c
	h.mu.Unlock()
	if before != nil {
		h.displaceCalls(before.conn, id)
		before.closeFor(ErrReplaced)
		<-before.done
	}
	return nil
}

// refuse answers a CONNECT with a code and ends the connection. It writes the packet itself, for
// the broker knows but a few of the codes.
func (f *mqttFront) refuse(c *mqttConn, code byte, why error) error {
	h := f.hub
	c.answered = true
	c.Write([]byte{packetConnack << 4, 2, 0, code})
	c.farewell(why)
	h.event(Event{Kind: Refused, Code: code, Err: why}, c.conn)
	c.drain()
	return why
}

// readWill takes the will out of the packet, because the broker would publish it to others. The hub
// keeps it as the message to be logged.
func readWill(c *mqttConn, id identity, pk *packets.Packet) (*Message, error) {
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
	m.Properties = append(m.Properties, Property{"iothub-MessageType", "Will"})
	m.Protocol, m.Body, m.QoS, m.Connection = MQTT, w.WillPayload, w.WillQos, c.number
	w.WillFlag, w.WillQos, w.WillRetain, w.WillTopic, w.WillPayload = false, 0, false, "", nil
	return &m, nil
}

// inspect reads a PUBLISH. An error closes the connection: 3.1.1 has no other answer.
func (f *mqttFront) inspect(c *mqttConn, pk packets.Packet) (Message, error) {
	if err := checkPublish(pk); err != nil {
		return Message{}, err
	}
	m, err := parseTelemetry(c.id, pk.TopicName)
	if err != nil {
		return Message{}, err
	}
	m.Protocol = MQTT
	m.Body, m.QoS, m.PacketID, m.Dup, m.Connection = pk.Payload, pk.FixedHeader.Qos, pk.PacketID, pk.FixedHeader.Dup,
		c.number
	if n := sizeOf(&m); n > MaxMessage {
		return Message{}, fmt.Errorf("message of %d bytes, at most %d are allowed", n, MaxMessage)
	}
	if pk.FixedHeader.Retain {
		m.Properties = append(m.Properties, Property{"mqtt-retain", "true"})
	}
	return m, nil
}
