package sim_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	mqttengine "github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/stretchr/testify/require"
)

// way has the connection options that the transports share. A transport ignores fields that it does
// not need.
type way struct {
	TLS       *tls.Config
	Plaintext bool
	Addr      string
	Dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	// RootCAs are the roots of a gateway. Nil: those of TLS.
	RootCAs func(ctx context.Context, refused error) (*x509.CertPool, error)
	// Certificate authenticates the device. Nil: its token does.
	Certificate func(ctx context.Context) (*tls.Certificate, error)
	// devices makes a certificate for the device. Nil: see Certificate.
	devices *testbroker.CertAuthority
	// KeepAlive and PingTimeout are for MQTT.
	KeepAlive, PingTimeout time.Duration
	// WriteTimeout is for all but HTTP.
	WriteTimeout time.Duration
	// Poll is for HTTP. Default: 5 s.
	Poll time.Duration
}

// engine makes a transport to the same hub with the same settings. The whole system is tested with
// each.
type engine struct {
	name     string
	protocol hubdata.Protocol
	make     func(creds *transport.Credentials, w *way) transport.Transport

	batches bool // several messages fit in a transfer
	shared  bool // many devices may share a connection
	sasl    bool // the token is sent by SASL, not put
	twins   bool // supports twin and methods
	plain   bool // speaks with a plain broker, by a topic map
	five    bool // MQTT 5
	auth    bool // enhanced authentication of MQTT 5
	next    bool // a hub with the MQTT v5 profile: without tokens and C2D messages
	boxed   bool // messages are in an envelope, because the protocol has no place for their fields
	// unmarked: messages that are sent again have no DUP.
	unmarked bool
	// commandQoS is the QoS of messages from the broker; zero: 1.
	commandQoS byte
	variant    bool // a variant of another engine: tested only with -all
}

var engines = []engine{
	{name: "mqtt", protocol: hubdata.MQTT, twins: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return mqtt.New(w.mqtt())
	}},
	{name: "paho", protocol: hubdata.MQTT, twins: true, unmarked: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return paho.New(&mqtt.Options{Network: w.network(), KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout})
	}},
	{name: "mqtt with the buffers of a board", variant: true, protocol: hubdata.MQTT, twins: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			network := w.network()
			return mqttengine.New(mqtt.Dialer(&network), &mqttengine.Options{KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout,
				ReadBuffer: 4096 + 512, WriteBuffer: 1024})
		}},
	{name: "paho, topic map", variant: true, protocol: hubdata.MQTT, plain: true, boxed: true, unmarked: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			return paho.New(&mqtt.Options{Network: w.network(), KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout,
				Dialect: hubfixture.Topics(true)})
		}},
	{name: "mqtt, topic map", protocol: hubdata.MQTT, plain: true, boxed: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			o := w.mqtt()
			o.Dialect = hubfixture.Topics(true)
			return mqtt.New(o)
		}},
	{name: "mqtt, MQTT 5", protocol: hubdata.MQTT, plain: true, five: true, make: mqtt5(mqtt.MQTT5Options{})},
	{name: "mqtt, MQTT 5, QoS 2", variant: true, protocol: hubdata.MQTT, plain: true, five: true, commandQoS: 2,
		make: mqtt5(mqtt.MQTT5Options{ExactlyOnce: true})},
	{name: "mqtt, MQTT 5, enhanced authentication", protocol: hubdata.MQTT, plain: true, five: true, auth: true,
		make: mqtt5(mqtt.MQTT5Options{Auth: &mqttengine.Auth{Method: testbroker.AuthMethod}})},
	{name: "mqtt, MQTT v5 profile", protocol: hubdata.MQTT, twins: true, five: true, next: true,
		make: func(creds *transport.Credentials, w *way) transport.Transport {
			o := w.mqtt()
			o.Dialect = &nexthub.Hub{}
			if w.devices != nil {
				cert := w.devices.NewClientCert(creds.DeviceID, time.Time{}, time.Time{})
				o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
			}
			return mqtt.New(o)
		}},
	{name: "amqp", protocol: hubdata.AMQP, twins: true, batches: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return amqp.New(w.amqp())
	}},
	{name: "amqp, a message a transfer", variant: true, protocol: hubdata.AMQP, twins: true,
		make: func(_ *transport.Credentials,
			w *way) transport.Transport {
			o := w.amqp()
			o.Batch = 1
			return amqp.New(o)
		}},
	{name: "amqp, SASL PLAIN", variant: true, protocol: hubdata.AMQP, twins: true, batches: true, sasl: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			o := w.amqp()
			o.Auth = amqp.AuthPlain
			return amqp.New(o)
		}},
	{name: "amqp, shared", variant: true, protocol: hubdata.AMQP, twins: true, batches: true, shared: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			return amqp.NewMux(w.amqp())
		}},
	{name: "http", protocol: hubdata.HTTP, batches: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return http.New(w.http())
	}},
	{name: "http, a message a request", variant: true, protocol: hubdata.HTTP, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		o := w.http()
		o.Batch = 1
		return http.New(o)
	}},
	{name: "http/2", variant: true, protocol: hubdata.HTTP, batches: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		o := w.http()
		o.HTTP2 = true
		return http.New(o)
	}},
}

func (w *way) mqtt() *mqtt.Options {
	return &mqtt.Options{Network: w.network(), KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout}
}

// mqtt5 returns the constructor of engines with MQTT 5.
func mqtt5(o mqtt.MQTT5Options) func(_ *transport.Credentials, w *way) transport.Transport {
	return func(_ *transport.Credentials, w *way) transport.Transport {
		m := w.mqtt()
		m.Dialect, m.Protocol = hubfixture.Topics(false), mqtt.MQTT5(&o)
		return mqtt.New(m)
	}
}

// network returns the settings of transports other than HTTP.
func (w *way) network() netopt.Options {
	return netopt.Options{TLS: w.TLS, RootCAs: w.RootCAs, Plaintext: w.Plaintext, Addr: w.Addr, Dial: w.Dial,
		Certificate: w.Certificate, WriteTimeout: w.WriteTimeout}
}

func (w *way) amqp() *amqp.Options {
	return &amqp.Options{Network: w.network()}
}

func (w *way) http() *http.Options {
	return &http.Options{Network: netopt.Options{TLS: w.TLS, Plaintext: w.Plaintext, Addr: w.Addr, Dial: w.Dial,
		Certificate: w.Certificate},
		PollInterval: cmp.Or(w.Poll,
			5*time.Second)}
}

// ports are the ports of a hub per protocol, without TLS and with it.
var ports = map[hubdata.Protocol]struct{ plain, secure testbroker.Port }{
	hubdata.MQTT: {testbroker.PortMQTT, testbroker.PortMQTTS},
	hubdata.AMQP: {testbroker.PortAMQP, testbroker.PortAMQPS},
	hubdata.HTTP: {testbroker.PortHTTP, testbroker.PortHTTPS},
}

// inMemory connects to the hub without sockets.
func (e engine) inMemory(h *testbroker.Hub, secure bool) *way {
	if secure {
		return e.trusting(h, way{Dial: h.Dial(ports[e.protocol].secure)})
	}
	return &way{Plaintext: true, Dial: h.Dial(ports[e.protocol].plain)}
}

// trusting returns w with the hub's roots, and with certificates for devices without tokens.
func (e engine) trusting(h *testbroker.Hub, w way) *way {
	w.TLS = h.ClientTLS()
	if e.next {
		w.devices = testbroker.NewCertAuthority("devices")
		if err := h.AddCA(w.devices.Cert()); err != nil {
			panic(err)
		}
	}
	return &w
}

// add adds a device.
func (e engine) add(t *testing.T, h *testbroker.Hub, id string) {
	t.Helper()
	add := h.AddDevice
	if e.next {
		add = h.AddDeviceCA
	}
	_, err := add(id)
	require.NoError(t, err)
}

// options returns the settings of the engine's hub: o, and for a topic map a plain broker.
func (e engine) options(o testbroker.Options) *testbroker.Options {
	switch {
	case e.plain:
		o.Broker = &testbroker.BrokerOptions{CommandQoS: e.commandQoS}
	case e.next:
		o.MQTTv5 = &testbroker.MQTTv5Options{}
	}
	return &o
}

// creds returns the credentials of a device for the engine.
func (e engine) creds(t *testing.T, connectionString string) *transport.Credentials {
	t.Helper()
	creds, err := device.ParseConnectionString(connectionString)
	require.NoError(t, err)
	if e.plain {
		creds.UserName = creds.DeviceID
	}
	return creds
}

// credsOf returns the credentials of one of the hub's devices.
func (e engine) credsOf(t *testing.T, h *testbroker.Hub, id string) *transport.Credentials {
	t.Helper()
	if e.next {
		return &transport.Credentials{Host: h.HostName(), DeviceID: id}
	}
	return e.creds(t, h.ConnectionString(id))
}

// openHub returns a hub with the device dev-1, closed by t.Cleanup, and the device's credentials.
func (e engine) openHub(t *testing.T) (*testbroker.Hub, *transport.Credentials) {
	t.Helper()
	hub := hubfixture.Open(t, e.options(testbroker.Options{}))
	e.add(t, hub, "dev-1")
	return hub, e.credsOf(t, hub, "dev-1")
}

// messages returns the hub's log, with messages out of their envelopes.
func (e engine) messages(hub *testbroker.Hub) []hubdata.Message {
	all := hub.Messages()
	for i := range all {
		if e.boxed {
			hubfixture.Envelope{}.OpenLog(&all[i])
		}
	}
	return all
}

// sendC2D sends a cloud-to-device message in the engine's envelope.
func (e engine) sendC2D(hub *testbroker.Hub, id string, m hubdata.C2D) error {
	if e.boxed {
		hubfixture.Envelope{}.SealC2D(&m)
	}
	return hub.SendC2D(id, m)
}

// withEachEngine runs f once for each engine.
func withEachEngine(t *testing.T, f func(t *testing.T, e engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			e.skipVariant(t)
			f(t, e)
		})
	}
}

// needsMessages skips a test of messages to the device.
func (e engine) needsMessages(t *testing.T) {
	t.Helper()
	if e.next {
		t.Skip("there are no messages to the device")
	}
}

// skipVariant skips a test of a variant engine unless -all is set.
func (e engine) skipVariant(t *testing.T) {
	t.Helper()
	if e.variant && !*all {
		t.Skip("SKIPPED: a variant of another engine; go test ./internal/sim -all runs it")
	}
}
