package testbroker_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Packet types.
const (
	connack  = 2
	puback   = 4
	suback   = 9
	unsuback = 11
	pingresp = 13
)

// newHub makes a hub with the device dev-1. The hub is closed when the test ends, inside the bubble
// if there is one.
func newHub(t testing.TB, o *testbroker.Options) (*testbroker.Hub, hubdata.Device) {
	h, err := testbroker.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	d, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	return h, d
}

// sign makes a token from its parts; sr is used unchanged.
func sign(sr, key string, expiry int64) string {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		panic(err)
	}
	return signBytes(sr, raw, expiry)
}

// signBytes is sign with a key that is not in base64.
func signBytes(sr string, key []byte, expiry int64) string {
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s\n%d", sr, expiry)
	sig := url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return fmt.Sprintf("SharedAccessSignature sr=%s&sig=%s&se=%d", sr, sig, expiry)
}

// token returns a token that is valid for an hour.
func token(d hubdata.Device) string {
	resource := d.HostName + "/devices/" + d.ID
	if d.ModuleID != "" {
		resource += "/modules/" + d.ModuleID
	}
	return sign(url.QueryEscape(resource), d.PrimaryKey, time.Now().Add(time.Hour).Unix())
}

// connect holds the fields of a CONNECT packet.
type connect struct {
	name      string // protocol name
	level     byte
	flags     byte // in addition to the flags implied by the fields
	keepAlive uint16
	clientID  string
	will      *will
	user      string
	password  string
}

type will struct {
	topic, body string
	qos         byte
}

// connectOf returns a CONNECT that the hub accepts.
func connectOf(d hubdata.Device) connect {
	id := d.ID
	if d.ModuleID != "" {
		id += "/" + d.ModuleID
	}
	return connect{
		name: "MQTT", level: 4, flags: 2, keepAlive: 60, clientID: id,
		user: d.HostName + "/" + id + "/?api-version=2021-04-12", password: token(d),
	}
}

func str(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }

func frame(first byte, body ...[]byte) []byte {
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

func (c connect) bytes() []byte {
	flags := c.flags
	payload := str(c.clientID)
	if c.will != nil {
		flags |= 4 | c.will.qos<<3
		payload = append(payload, str(c.will.topic)...)
		payload = append(payload, str(c.will.body)...)
	}
	if c.user != "" {
		flags |= 0x80
		payload = append(payload, str(c.user)...)
	}
	if c.password != "" {
		flags |= 0x40
		payload = append(payload, str(c.password)...)
	}
	head := append(str(c.name), c.level, flags, byte(c.keepAlive>>8), byte(c.keepAlive))
	if c.level == 5 {
		head = append(head, 0) // no properties
	}
	return frame(0x10, head, payload)
}

func publishBytes(flags byte, id uint16, topic, body string) []byte {
	var idBytes []byte
	if flags&6 != 0 {
		idBytes = []byte{byte(id >> 8), byte(id)}
	}
	return frame(0x30|flags, str(topic), idBytes, []byte(body))
}

// wire is a client that sends and reads MQTT bytes.
type wire struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func newWire(t testing.TB, conn net.Conn) *wire {
	t.Cleanup(func() { conn.Close() })
	return &wire{t, conn, bufio.NewReader(conn)}
}

// dial connects to the hub in memory.
func dial(t testing.TB, h *testbroker.Hub) *wire {
	conn, err := h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub:1883")
	require.NoError(t, err)
	return newWire(t, conn)
}

// login connects and sends a CONNECT, which must be accepted.
func login(t testing.TB, h *testbroker.Hub, d hubdata.Device) *wire {
	w := dial(t, h)
	require.Equal(t, []byte{0, 0}, w.connect(connectOf(d)))
	return w
}

func (w *wire) send(p []byte) {
	w.t.Helper()
	_, err := w.conn.Write(p)
	require.NoError(w.t, err)
}

// read returns the next packet.
func (w *wire) read() (kind byte, body []byte, err error) {
	first, err := w.in.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	n, err := binary.ReadUvarint(w.in) // the encodings are the same up to four bytes
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(w.in, body)
	return first >> 4, body, err
}

// expect reads a packet that must be of the kind.
func (w *wire) expect(kind byte) []byte {
	w.t.Helper()
	got, body, err := w.read()
	require.NoError(w.t, err)
	require.Equal(w.t, kind, got)
	return body
}

// end returns the error of the next read, which must fail.
func (w *wire) end() error {
	w.t.Helper()
	kind, _, err := w.read()
	require.Error(w.t, err, "got a packet of type %d", kind)
	return err
}

// connect sends a CONNECT and returns the two bytes of the CONNACK's body.
func (w *wire) connect(c connect) []byte {
	w.t.Helper()
	w.send(c.bytes())
	return w.expect(connack)
}

// publish sends a PUBLISH with QoS 1.
func (w *wire) publish(id uint16, topic, body string) {
	w.t.Helper()
	w.send(publishBytes(2, id, topic, body))
}

// acked reads a PUBACK and returns its packet id.
func (w *wire) acked() uint16 {
	w.t.Helper()
	return binary.BigEndian.Uint16(w.expect(puback))
}

func (w *wire) ping() {
	w.t.Helper()
	w.send([]byte{0xc0, 0})
	w.expect(pingresp)
}

// subscribe sends a SUBSCRIBE and returns the SUBACK's codes.
func (w *wire) subscribe(qos byte, filters ...string) []byte {
	w.t.Helper()
	body := []byte{0, 7}
	for _, f := range filters {
		body = append(append(body, str(f)...), qos)
	}
	w.send(frame(0x82, body))
	answer := w.expect(suback)
	require.Equal(w.t, []byte{0, 7}, answer[:2])
	return answer[2:]
}

const events = "devices/dev-1/messages/events/"

// contextWithCause returns an ended context.
func contextWithCause(cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx, func() { cancel(nil) }
}
