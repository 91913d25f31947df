package mqttfront

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
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

// maxKeepAlive is the longest keep-alive in seconds. The hub waits at most 1.5 times that for a
// packet.
const maxKeepAlive = 1178

// longestWait is the longest keep-alive that the broker can have: it counts 1.5 times that in 16
// bits.
const longestWait = (1<<16 - 1) * 2 / 3

// nothing replaces a packet that the hub has handled: a PUBACK without a packet, which the broker
// ignores.
var nothing = packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Puback}}

// hook connects the hub to the broker. Every packet passes OnPacketRead before the broker handles
// it. The hub checks the connection there, because in later hooks the broker answers by itself, and
// not as the hub would.
type hook struct {
	mochi.HookBase
	front *Front
}

// ID returns the name of the hook.
func (k *hook) ID() string { return "hub" }

// Provides reports which methods the broker shall call.
func (k *hook) Provides(b byte) bool {
	return slices.Contains([]byte{
		mochi.OnPacketRead, mochi.OnConnectAuthenticate, mochi.OnSessionEstablish, mochi.OnPacketEncode,
		mochi.OnSessionEstablished,
	}, b)
}

// OnPacketRead checks a packet. ErrRejectPacket closes the connection.
func (k *hook) OnPacketRead(cl *mochi.Client, pk packets.Packet) (packets.Packet, error) {
	c, ok := cl.Net.Conn.(*client)
	if !ok {
		return pk, packets.ErrRejectPacket
	}
	if c.Mode.Load() != hub.Open {
		c.SetCause(c.Drain()) // the packet was read before the mode changed
		return pk, packets.ErrRejectPacket
	}
	var err error
	switch pk.FixedHeader.Type {
	case packets.Connect:
		pk, err = k.front.connect(c, pk)
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
		if in := k.front.hub.Faults.Take(fault.SwallowPingresp, c.ID); in != nil {
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

// OnConnectAuthenticate accepts every client, because connect has checked it.
func (k *hook) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }

// OnSessionEstablish runs just before the CONNACK.
func (k *hook) OnSessionEstablish(cl *mochi.Client, _ packets.Packet) {
	c := cl.Net.Conn.(*client)
	h := k.front.hub
	c.Establish()
	h.Event(event.Event{Kind: event.Connected}, c.Conn)
	h.Changed.Wake()
}

// OnPacketEncode sets session-present in the CONNACK, because the broker does not know the hub's
// sessions.
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
	k.front.hub.Garbage(fault.GarbageOnConnect, c.Conn, badPacket)
	k.front.attach(c)
}

// connect checks a CONNECT packet. The broker accepts every CONNECT that connect passes.
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
	c.Identify(user.id)
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
	if h.Full(user.id) {
		return pk, f.refuse(c, refusedUnavailable, hub.ErrClients)
	}
	if c.will, err = readWill(c, user.id, &pk); err != nil {
		return pk, err
	}
	if err := f.takeOver(c, user.id); err != nil {
		return pk, err
	}
	h.AnnounceModel(user.id, user.param("model-id"))
	c.issues = user.param("api-version") >= firstIssuing
	f.resume(c, pk.Connect.Clean)
	pk.Connect.Clean = true // the hub keeps the sessions, so the broker must keep none
	longest := f.longestKeepAlive()
	if k := pk.Connect.Keepalive; k == 0 || k > longest {
		pk.Connect.Keepalive = longest
	}
	k := time.Duration(pk.Connect.Keepalive)
	c.silence = (k + k/2) * time.Second // as the broker has it
	return pk, nil
}

// longestKeepAlive returns the longest keep-alive in seconds.
func (f *Front) longestKeepAlive() uint16 {
	if g := f.hub.Gateway; g != nil {
		return uint16(min(g.KeepAlive/time.Second, longestWait))
	}
	return maxKeepAlive
}

// authenticate checks the credentials of a client: its token, or without one its certificate. code
// is the CONNACK code of a refusal.
func (f *Front) authenticate(c *client, user userName, password string) (code byte, err error) {
	h := f.hub
	if password == "" {
		var chain []*x509.Certificate
		if c.TLS != nil {
			chain = c.TLS.ConnectionState().PeerCertificates
		}
		return refusedAuthority, h.Certified(user.host, user.id, chain)
	}
	tok, err := hub.ParseToken(password)
	if err != nil {
		return refusedCredentials, err
	}
	if err := h.Authorize(user.host, user.id, tok); err != nil {
		return refusedAuthority, err
	}
	c.until = tok.Deadline(h.ConnectionGrace)
	return 0, nil
}

// takeOver makes c the connection of its identity and ends the previous one. It waits for that end,
// so that the broker never sees two.
func (f *Front) takeOver(c *client, id hub.Identity) error {
	h := f.hub
	if h.Known(id) != nil {
		return hub.ErrRemoved // removed after the authorization
	}
	f.mu.Lock()
	before := f.current[id]
	f.current[id] = c
	f.mu.Unlock()
	if before != nil {
		h.DisplaceCalls(before.Conn, id)
		before.CloseFor(hub.ErrReplaced)
		<-before.Done
	}
	return nil
}

// refuse answers a CONNECT with a code and ends the connection. It writes the packet itself,
// because the broker knows only some of the codes.
func (f *Front) refuse(c *client, code byte, why error) error {
	h := f.hub
	c.answered = true
	c.Write([]byte{packetConnack << 4, 2, 0, code})
	c.CloseGracefully(why)
	h.Event(event.Event{Kind: event.Refused, Code: code, Err: why}, c.Conn)
	c.Drain()
	return why
}

// readWill removes the will from the packet, because the broker would publish it to other clients.
// The hub keeps it as a message to log.
func readWill(c *client, id hub.Identity, pk *packets.Packet) (*hubdata.Message, error) {
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
	m.Properties = append(m.Properties, hubdata.Property{Name: "iothub-MessageType", Value: "Will"})
	m.Protocol, m.Body, m.QoS, m.Connection = hubdata.MQTT, w.WillPayload, w.WillQos, c.Number
	w.WillFlag, w.WillQos, w.WillRetain, w.WillTopic, w.WillPayload = false, 0, false, "", nil
	return &m, nil
}
