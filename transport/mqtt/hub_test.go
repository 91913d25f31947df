package mqtt

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Packet types of MQTT 3.1.1, section 2.2.1.
const (
	typeConnack    = byte(mqttwire.Connack)
	typeDisconnect = byte(mqttwire.Disconnect)
)

const testKey = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM=" // base64 of "secret-key-of-the-tests"

func testCreds(t testing.TB) *transport.Credentials {
	sign, err := transport.SharedKey(testKey)
	require.NoError(t, err)
	return &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1", Sign: sign}
}

// bubble runs f with fake time. All goroutines of f must have ended when it returns.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	testkit.Bubble(t, f)
}

type (
	link = testkit.MQTTLink
	sink = hubfixture.Sink
)

// hub is a scripted hub in memory.
type hub struct {
	t    testing.TB
	net  *memconn.Network
	wrap func(net.Conn) net.Conn
}

func newHub(t testing.TB) *hub {
	h := &hub{t: t, net: memconn.NewNetwork("hub.example.test:8883"), wrap: func(c net.Conn) net.Conn { return c }}
	t.Cleanup(func() { _ = h.net.Close() })
	return h
}

// options returns options that reach the hub without TLS.
func (h *hub) options() *Options {
	return &Options{Network: netopt.Options{Plaintext: true, Dial: h.net.DialContext}}
}

// accept accepts a connection and reads its CONNECT.
func (h *hub) accept() *link {
	c, err := h.net.Accept()
	require.NoError(h.t, err)
	l := testkit.NewMQTTLink(h.t, h.wrap(c))
	l.Expect(0x10)
	return l
}

// welcome is accept followed by a CONNACK with code 0.
func (h *hub) welcome() *link {
	l := h.accept()
	l.Send(typeConnack<<4, 2, 0, 0)
	return l
}

// running is a session with its Run on a goroutine.
type running struct {
	transport.Session
	sink   *sink
	ran    <-chan error // gets Run's error
	cancel context.CancelFunc
}

// dial dials while script, if not nil, plays the hub on another goroutine.
func dial(t testing.TB, o *Options, script func()) (transport.Session, *sink, context.Context, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	played := make(chan struct{})
	go func() {
		defer close(played)
		if script != nil {
			script()
		}
	}()
	k := new(sink)
	s, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Window: 16, Queue: 16, Sink: k})
	<-played
	require.NoError(t, err)
	return s, k, ctx, cancel
}

// start dials the hub and runs the session.
func start(t testing.TB, h *hub, o *Options) (*running, *link) {
	t.Helper()
	var l *link
	s, k, ctx, cancel := dial(t, o, func() { l = h.welcome() })
	return run(t, s, k, ctx, cancel), l
}

func run(t testing.TB, s transport.Session, k *sink, ctx context.Context, cancel context.CancelFunc) *running {
	return &running{s, k, k.Run(t, ctx, s, cancel), cancel}
}

// send sends bodies under the tags 0, 1, ...
func (r *running) send(bodies ...string) { r.Send(hubfixture.Items(0, bodies...)) }
