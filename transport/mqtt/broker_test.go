package mqtt_test

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/mqttws"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// The suite over every way to the hub.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		opt    func(h *broker) *mqtt.Options
	}{
		{"plain", false, func(h *broker) *mqtt.Options { return &mqtt.Options{Plaintext: true, Dial: h.Dial} }},
		{"TLS", false, func(h *broker) *mqtt.Options { return &mqtt.Options{Dial: h.DialTLSPort, TLS: h.ClientTLS()} }},
		{"module", true, func(h *broker) *mqtt.Options { return &mqtt.Options{Plaintext: true, Dial: h.Dial} }},
		{"WebSocket without TLS", false, func(h *broker) *mqtt.Options {
			return &mqtt.Options{Tunnel: mqttws.New(nil), Plaintext: true, Dial: h.DialWS}
		}},
		{"WebSocket", false, func(h *broker) *mqtt.Options {
			return &mqtt.Options{Tunnel: mqttws.New(nil), Dial: h.DialWSPort, TLS: h.ClientTLS()}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := newBroker(t)
				if way.module {
					h.becomeModule(t)
				}
				return h.pair(t, mqtt.New(way.opt(h)))
			})
		})
	}
}

// Certificate, WebSocket and TLS together; the request then does not ask the hub to do without a certificate.
func TestACertificateOverWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newBroker(t)
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		o := &mqtt.Options{Tunnel: mqttws.New(nil), Dial: h.DialWSPort, TLS: h.ClientTLS()}
		o.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
		ctx, cancel := context.WithCancel(t.Context())
		creds := &transport.Credentials{Host: h.HostName(), DeviceID: "dev-x"}
		s, err := mqtt.New(o).Dial(ctx, &transport.Config{Creds: creds, Window: 1, Sink: goodbye{cancel}})
		require.NoError(t, err)
		s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte("x")}}})
		require.Error(t, s.Run(ctx))
		require.Len(t, h.Messages(), 1)
	})
}

// A thousand reconnects a day must not use up a process's descriptors.
func TestNoSocketStaysOpen(t *testing.T) {
	h := newBroker(t)
	tlsAddr, err := h.ListenTLS("127.0.0.1:0")
	require.NoError(t, err)
	wsAddr, err := h.ListenWS("127.0.0.1:0")
	require.NoError(t, err)
	before := openSockets(t)
	for name, o := range map[string]mqtt.Options{
		"TLS":       {Addr: tlsAddr.String()},
		"WebSocket": {Addr: wsAddr.String(), Tunnel: mqttws.New(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			trusting, elsewhere := o, o
			trusting.TLS = h.ClientTLS()
			elsewhere.TLS, elsewhere.Tunnel = h.ClientTLS(), mqttws.New(&mqttws.Options{Path: "/elsewhere"})
			for range 10 {
				for _, c := range []struct {
					o     mqtt.Options
					creds *transport.Credentials
					kinds []transport.Kind // empty: success
				}{
					{trusting, h.creds(t, ""), nil},
					{trusting, h.creds(t, wrongKey), []transport.Kind{transport.Unauthorized}},
					{o, h.creds(t, ""), []transport.Kind{transport.Untrusted}},
					{elsewhere, h.creds(t, ""), []transport.Kind{transport.NotFound, transport.Network}},
				} {
					ctx, cancel := context.WithCancel(t.Context())
					s, err := mqtt.New(&c.o).Dial(ctx, &transport.Config{Creds: c.creds, Window: 1, Sink: goodbye{cancel}})
					cancel()
					if c.kinds == nil {
						require.NoError(t, err)
						require.Error(t, s.Run(ctx))
						continue
					}
					require.Contains(t, c.kinds, transport.KindOf(err), "%v", err)
				}
			}
		})
	}
	require.Eventually(t, func() bool { return openSockets(t) <= before }, 5*time.Second, 10*time.Millisecond)
}

// openSockets counts this process's, where that can be known.
func openSockets(t testing.TB) int {
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Log("open sockets are not counted here:", err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// marks are in the stacks of testbroker's goroutines.
var marks = []string{"hubline/testbroker.", "mochi-mqtt/server"}

// wrongKey is base64 and nobody's key.
const wrongKey = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="

// broker is a testbroker with one identity, and the transporttest.Hub and transporttest.Inbox of it.
type broker struct {
	*testbroker.Hub
	dev testbroker.Device
	id  string

	mu            sync.Mutex
	refusal, held *testbroker.Injected
}

var (
	_ transporttest.Hub   = (*broker)(nil)
	_ transporttest.Inbox = (*broker)(nil)
)

// newBroker makes a hub with the device "dev-1", closed by t.Cleanup.
func newBroker(t testing.TB) *broker {
	h := openBroker(t)
	var err error
	if h.dev, err = h.AddDevice("dev-1"); err != nil {
		t.Fatal(err)
	}
	h.id = "dev-1"
	return h
}

// becomeModule makes the identity the module "mod-1" of the device "dev-1".
func (h *broker) becomeModule(t testing.TB) {
	var err error
	if h.dev, err = h.AddModule("dev-1", "mod-1"); err != nil {
		t.Fatal(err)
	}
	h.id = "dev-1/mod-1"
}

func openBroker(t testing.TB) *broker {
	h := new(broker)
	var err error
	if h.Hub, err = testbroker.New(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// creds are the identity's with this key, its own if key is empty.
func (h *broker) creds(t testing.TB, key string) *transport.Credentials {
	if key == "" {
		key = h.dev.PrimaryKey
	}
	sign, err := transport.SharedKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &transport.Credentials{Host: h.dev.HostName, DeviceID: h.dev.ID, ModuleID: h.dev.ModuleID, Sign: sign}
}

// pair is what the suite takes, with the given transport to this hub.
func (h *broker) pair(t testing.TB, tr transport.Transport) *transporttest.Pair {
	return &transporttest.Pair{
		Transport: tr, Creds: h.creds(t, ""), WrongCreds: h.creds(t, wrongKey), Hub: h,
		HubMarks: marks, Features: transport.Messages, MarksAgain: true, TellsAgain: true,
	}
}

func (h *broker) Received() []transporttest.Received {
	var out []transporttest.Received
	for _, m := range h.Messages() {
		r := transporttest.Received{Again: m.Dup, Message: transport.Message{
			ID: m.MessageID, CorrelationID: m.CorrelationID, ContentType: m.ContentType, ContentEncoding: m.ContentEncoding,
			Created: moment(m.CreationTime), Expires: moment(m.Expiry), Body: m.Body,
		}}
		for _, p := range m.Properties {
			r.Properties = append(r.Properties, transport.Property(p))
		}
		out = append(out, r)
	}
	return out
}

func moment(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}

func (h *broker) HoldAnswers(on bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on {
		h.held = h.Inject(testbroker.Fault{Kind: testbroker.DelayPuback, Times: -1, Delay: 20 * time.Second})
	} else {
		h.held.Remove()
	}
}

func (h *broker) Cut() { h.Drop("") }

func (h *broker) Silence() { h.Inject(testbroker.Fault{Kind: testbroker.HalfOpen}).Remove() }

func (h *broker) Refuse(r transporttest.Refusal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refusal != nil {
		h.refusal.Remove()
		h.refusal = nil
	}
	switch r {
	case transporttest.Unreachable:
		h.refusal = h.Inject(testbroker.Fault{Kind: testbroker.Absent})
	case transporttest.Mute:
		h.refusal = h.Inject(testbroker.Fault{Kind: testbroker.NoConnack, Times: -1})
	case transporttest.Unavailable:
		h.refusal = h.Inject(testbroker.Fault{Kind: testbroker.RefuseConnect, Times: -1})
	}
}

func (h *broker) Deliver(body string) {
	if err := h.SendC2D(h.id, testbroker.C2D{Body: []byte(body)}); err != nil {
		panic(err)
	}
}

func (h *broker) Undelivered() int {
	return h.CountC2D(h.id, testbroker.Enqueued) + h.CountC2D(h.id, testbroker.Invisible)
}
