// Package hubtest has the clients of the tests of the hub and of its fronts: one that sends bytes
// over MQTT, one that sends requests over HTTP, and two over AMQP, of frames and of a library.
package hubtest

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Packet types.
const (
	Connack  = 2
	Puback   = 4
	Suback   = 9
	Unsuback = 11
	Pingresp = 13
)

// NewHub makes a hub with the device dev-1. The hub is closed when the test ends, inside the bubble
// if there is one.
func NewHub(t testing.TB, o *testbroker.Options) (*testbroker.Hub, hubdata.Device) {
	h, err := testbroker.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	d := AddDevice(t, h, "dev-1")
	return h, d
}

// Sign makes a token from its parts; sr is used unchanged.
func Sign(sr, key string, expiry int64) string {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		panic(err)
	}
	return SignBytes(sr, raw, expiry)
}

// SignBytes is Sign with a key that is not in base64.
func SignBytes(sr string, key []byte, expiry int64) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%d", sr, expiry)
	sig := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d", sr, sig, expiry)
}

// Token returns a token that is valid for an hour.
func Token(d hubdata.Device) string {
	resource := d.HostName + "/devices/" + d.ID
	if d.ModuleID != "" {
		resource += "/modules/" + d.ModuleID
	}
	return Sign(url.QueryEscape(resource), d.PrimaryKey, time.Now().Add(time.Hour).Unix())
}

// Connect holds the fields of a CONNECT packet.
type Connect struct {
	Name      string // protocol name
	Level     byte
	Flags     byte // in addition to the flags implied by the fields
	KeepAlive uint16
	ClientID  string
	Will      *Will
	User      string
	Password  string
}

// Will holds the will of a CONNECT packet.
type Will struct {
	Topic, Text string
	Qos         byte
}

// ConnectOf returns a CONNECT that the hub accepts.
func ConnectOf(d hubdata.Device) Connect {
	id := d.ID
	if d.ModuleID != "" {
		id += "/" + d.ModuleID
	}
	return Connect{
		Name: "MQTT", Level: 4, Flags: 2, KeepAlive: 60, ClientID: id,
		User: d.HostName + "/" + id + "/?api-version=2021-04-12", Password: Token(d),
	}
}

// Str returns a string as MQTT encodes it.
func Str(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }

// Frame returns a packet with its length.
func Frame(first byte, body ...[]byte) []byte {
	n := 0
	for _, b := range body {
		n += len(b)
	}
	p := []byte{first}
	for {
		b := byte(n & 0x7f)
		if n >>= 7; n == 0 {
			p = append(p, b)
			break
		}
		p = append(p, b|0x80)
	}
	for _, b := range body {
		p = append(p, b...)
	}
	return p
}

// Bytes encodes the packet.
func (c Connect) Bytes() []byte {
	flags := c.Flags
	payload := Str(c.ClientID)
	if c.Will != nil {
		flags |= 4 | c.Will.Qos<<3
		payload = append(payload, Str(c.Will.Topic)...)
		payload = append(payload, Str(c.Will.Text)...)
	}
	if c.User != "" {
		flags |= 0x80
		payload = append(payload, Str(c.User)...)
	}
	if c.Password != "" {
		flags |= 0x40
		payload = append(payload, Str(c.Password)...)
	}
	head := append(Str(c.Name), c.Level, flags, byte(c.KeepAlive>>8), byte(c.KeepAlive))
	if c.Level == 5 {
		head = append(head, 0) // no properties
	}
	return Frame(0x10, head, payload)
}

// PublishBytes encodes a PUBLISH. The flags are the low four bits of its first byte.
func PublishBytes(flags byte, id uint16, topic, body string) []byte {
	var idBytes []byte
	if flags&6 != 0 {
		idBytes = []byte{byte(id >> 8), byte(id)}
	}
	return Frame(0x30|flags, Str(topic), idBytes, []byte(body))
}

// Wire is a client that sends and reads MQTT bytes.
type Wire struct {
	T    testing.TB
	Conn net.Conn
	In   *bufio.Reader
}

// NewWire returns a client on a connection, which is closed when the test ends.
func NewWire(t testing.TB, conn net.Conn) *Wire {
	t.Cleanup(func() { conn.Close() })
	return &Wire{t, conn, bufio.NewReader(conn)}
}

// Dial connects to the hub in memory.
func Dial(t testing.TB, h *testbroker.Hub) *Wire {
	conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub:1883")
	require.NoError(t, err)
	return NewWire(t, conn)
}

// Login connects and sends a CONNECT, which must be accepted.
func Login(t testing.TB, h *testbroker.Hub, d hubdata.Device) *Wire {
	w := Dial(t, h)
	require.Equal(t, []byte{0, 0}, w.Connect(ConnectOf(d)))
	return w
}

// Send writes bytes.
func (w *Wire) Send(p []byte) {
	w.T.Helper()
	_, err := w.Conn.Write(p)
	require.NoError(w.T, err)
}

// Read returns the next packet.
func (w *Wire) Read() (kind byte, body []byte, err error) {
	first, err := w.In.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(w.In) // the encodings are the same up to four bytes
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(w.In, body)
	return first >> 4, body, err
}

// Expect reads a packet that must be of the kind.
func (w *Wire) Expect(kind byte) []byte {
	w.T.Helper()
	got, body, err := w.Read()
	require.NoError(w.T, err)
	require.Equal(w.T, kind, got)
	return body
}

// End returns the error of the next read, which must fail.
func (w *Wire) End() error {
	w.T.Helper()
	kind, _, err := w.Read()
	require.Error(w.T, err, "got a packet of type %d", kind)
	return err
}

// Connect sends a CONNECT and returns the two bytes of the CONNACK's body.
func (w *Wire) Connect(c Connect) []byte {
	w.T.Helper()
	w.Send(c.Bytes())
	return w.Expect(Connack)
}

// Publish sends a PUBLISH with QoS 1.
func (w *Wire) Publish(id uint16, topic, body string) {
	w.T.Helper()
	w.Send(PublishBytes(2, id, topic, body))
}

// Acked reads a PUBACK and returns its packet id.
func (w *Wire) Acked() uint16 {
	w.T.Helper()
	return binary.BigEndian.Uint16(w.Expect(Puback))
}

// Ping sends a PINGREQ and reads the answer.
func (w *Wire) Ping() {
	w.T.Helper()
	w.Send([]byte{0xc0, 0})
	w.Expect(Pingresp)
}

// Subscribe sends a SUBSCRIBE and returns the SUBACK's codes.
func (w *Wire) Subscribe(qos byte, filters ...string) []byte {
	w.T.Helper()
	body := []byte{0, 7}
	for _, f := range filters {
		body = append(append(body, Str(f)...), qos)
	}
	w.Send(Frame(0x82, body))
	answer := w.Expect(Suback)
	require.Equal(w.T, []byte{0, 7}, answer[:2])
	return answer[2:]
}

// Events is the topic of telemetry of dev-1.
const Events = "devices/dev-1/messages/events/"

// ContextWithCause returns an ended context.
func ContextWithCause(cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx, func() { cancel(nil) }
}

// WaitLimit bounds each wait on real sockets, where every wait should be much shorter.
const WaitLimit = 10 * time.Second

// DialTLS connects over TLS in memory, with certificates of the client.
func DialTLS(t testing.TB, h *testbroker.Hub, certs ...tls.Certificate) *Wire {
	raw := DialPort(t, h, testbroker.PortMQTTS)
	config := h.ClientTLS()
	config.Certificates = certs
	conn := tls.Client(raw, config)
	require.NoError(t, conn.HandshakeContext(t.Context()))
	return NewWire(t, conn)
}

// Enqueue sends C2D messages to dev-1.
func Enqueue(t testing.TB, h *testbroker.Hub, bodies ...string) {
	t.Helper()
	for _, b := range bodies {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(b)}))
	}
}

// InBubble runs a test with a hub that has the device dev-1, in a bubble of fake time.
func InBubble(t *testing.T, o *testbroker.Options, test func(t *testing.T, h *testbroker.Hub, d hubdata.Device)) {
	synctest.Test(t, func(t *testing.T) {
		h, d := NewHub(t, o)
		test(t, h, d)
	})
}

// RunInBubble is InBubble in a subtest.
func RunInBubble(t *testing.T, name string, o *testbroker.Options,
	test func(t *testing.T, h *testbroker.Hub, d hubdata.Device)) {
	t.Run(name, func(t *testing.T) { InBubble(t, o, test) })
}

// RunBubble runs a subtest in a bubble.
func RunBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
