package mqttfront_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A plainClient is a client of a plain broker. It encodes and decodes with the codec of another
// broker.
type plainClient struct {
	t       testing.TB
	conn    net.Conn
	in      *bufio.Reader
	version byte
}

// dialPlain connects to a plain broker in memory.
func dialPlain(t testing.TB, h *testbroker.Hub, version byte) *plainClient {
	conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "broker:1883")
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &plainClient{t, conn, bufio.NewReader(conn), version}
}

// plainConnect returns a CONNECT that the broker accepts.
func plainConnect(d hubdata.Device, version byte) packets.Packet {
	id := d.ID
	if d.ModuleID != "" {
		id += "/" + d.ModuleID
	}
	return packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Connect}, ProtocolVersion: version,
		Connect: packets.ConnectParams{
			ProtocolName: []byte("MQTT"), ClientIdentifier: id, Clean: true, Keepalive: 60,
			UsernameFlag: true, Username: []byte(id), PasswordFlag: true, Password: []byte(d.PrimaryKey),
		},
	}
}

// loginPlain connects as a device, which must succeed.
func loginPlain(t testing.TB, h *testbroker.Hub, d hubdata.Device, version byte) *plainClient {
	t.Helper()
	c := dialPlain(t, h, version)
	ack := c.connect(plainConnect(d, version))
	require.Zero(t, ack.ReasonCode, "%s", ack.Properties.ReasonString)
	return c
}

// connect sends a CONNECT and returns the CONNACK.
func (c *plainClient) connect(pk packets.Packet) packets.Packet {
	c.t.Helper()
	c.send(pk)
	return c.expect(packets.Connack)
}

// send sends a packet of the client's version.
func (c *plainClient) send(pk packets.Packet) {
	c.t.Helper()
	b, err := encode(pk, c.version)
	require.NoError(c.t, err)
	c.write(b)
}

func encode(pk packets.Packet, version byte) ([]byte, error) {
	var b bytes.Buffer
	pk.ProtocolVersion, pk.Mods.AllowResponseInfo = version, true
	encode := map[byte]func(*bytes.Buffer) error{
		packets.Connect: pk.ConnectEncode, packets.Publish: pk.PublishEncode, packets.Puback: pk.PubackEncode,
		packets.Pubrec: pk.PubrecEncode, packets.Pubcomp: pk.PubcompEncode, packets.Subscribe: pk.SubscribeEncode,
		packets.Unsubscribe: pk.UnsubscribeEncode, packets.Pingreq: pk.PingreqEncode,
		packets.Disconnect: pk.DisconnectEncode, packets.Auth: pk.AuthEncode,
	}[pk.FixedHeader.Type]
	if t := pk.FixedHeader.Type; t == packets.Subscribe || t == packets.Unsubscribe {
		pk.FixedHeader.Qos = 1
	}
	err := encode(&b)
	return b.Bytes(), err
}

func (c *plainClient) write(p []byte) {
	c.t.Helper()
	_, err := c.conn.Write(p)
	require.NoError(c.t, err)
}

// read returns the next packet.
func (c *plainClient) read() (packets.Packet, error) { return readPacket(c.in, c.version) }

func readPacket(in *bufio.Reader, version byte) (pk packets.Packet, err error) {
	first, err := in.ReadByte()
	if err != nil {
		return pk, err
	}
	if err := pk.FixedHeader.Decode(first); err != nil {
		return pk, err
	}
	if pk.FixedHeader.Remaining, _, err = packets.DecodeLength(in); err != nil {
		return pk, err
	}
	body := make([]byte, pk.FixedHeader.Remaining)
	if _, err := io.ReadFull(in, body); err != nil {
		return pk, err
	}
	pk.ProtocolVersion = version
	decode := map[byte]func([]byte) error{
		packets.Connack: pk.ConnackDecode, packets.Publish: pk.PublishDecode, packets.Puback: pk.PubackDecode,
		packets.Pubrel: pk.PubrelDecode, packets.Suback: pk.SubackDecode, packets.Unsuback: pk.UnsubackDecode,
		packets.Pingresp: pk.PingrespDecode, packets.Disconnect: pk.DisconnectDecode, packets.Auth: pk.AuthDecode,
	}[pk.FixedHeader.Type]
	return pk, decode(body)
}

// expect reads a packet that must be of the type.
func (c *plainClient) expect(typ byte) packets.Packet {
	c.t.Helper()
	pk, err := c.read()
	require.NoError(c.t, err)
	require.Equal(c.t, packets.PacketNames[typ], packets.PacketNames[pk.FixedHeader.Type])
	return pk
}

// ended returns the error of the next read, which must fail.
func (c *plainClient) ended() error {
	c.t.Helper()
	pk, err := c.read()
	require.Error(c.t, err, "got a packet of type %d", pk.FixedHeader.Type)
	return err
}

// disconnected reads a DISCONNECT and the end of the connection, and returns the code.
func (c *plainClient) disconnected() packets.Packet {
	c.t.Helper()
	pk := c.expect(packets.Disconnect)
	require.Equal(c.t, io.EOF, c.ended())
	return pk
}

// message returns a PUBLISH with QoS 1.
func message(id uint16, topic, body string) packets.Packet {
	return packets.Packet{
		FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: 1}, PacketID: id, TopicName: topic,
		Payload: []byte(body),
	}
}

// publish sends a message with QoS 1 and returns the code of its PUBACK.
func (c *plainClient) publish(id uint16, topic, body string) byte {
	c.t.Helper()
	c.send(message(id, topic, body))
	ack := c.expect(packets.Puback)
	require.Equal(c.t, id, ack.PacketID)
	return ack.ReasonCode
}

// subscribe sends a SUBSCRIBE and returns the SUBACK.
func (c *plainClient) subscribe(subs ...packets.Subscription) packets.Packet {
	c.t.Helper()
	c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Subscribe}, PacketID: 7, Filters: subs})
	return c.expect(packets.Suback)
}

// ack sends an acknowledgement.
func (c *plainClient) ack(typ byte, id uint16, code byte) {
	c.t.Helper()
	c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: typ}, PacketID: id, ReasonCode: code})
}

// ping makes sure that the broker has handled everything before.
func (c *plainClient) ping() {
	c.t.Helper()
	c.send(packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Pingreq}})
	c.expect(packets.Pingresp)
}
