package sim_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// way is how a transport gets to the hub: what all have in common. What a transport lacks it does
// not look at.
type way struct {
	TLS       *tls.Config
	Plaintext bool
	Addr      string
	Dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	// KeepAlive and PingTimeout are MQTT's.
	KeepAlive, PingTimeout time.Duration
	// WriteTimeout is not HTTP's.
	WriteTimeout time.Duration
	// Poll is HTTP's. Default: 5 s.
	Poll time.Duration
}

// An engine makes a transport to the same place by the same settings. The whole system is tried
// with each.
type engine struct {
	name     string
	protocol testbroker.Protocol
	make     func(creds *transport.Credentials, w *way) transport.Transport

	batches bool // several messages go in a transfer
	shared  bool // many devices may have one connection
	sasl    bool // the token is told by SASL, and none is put
	twins   bool // it carries twins and methods
	variant bool // of another engine: it is tried with -all only
}

var engines = []engine{
	{name: "paho", protocol: testbroker.MQTT, twins: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: netopt.Options{TLS: w.TLS, Plaintext: w.Plaintext, Addr: w.Addr, Dial: w.Dial,
			WriteTimeout: w.WriteTimeout}, KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout})
	}},
	{name: "lean", protocol: testbroker.MQTT, twins: true, make: func(creds *transport.Credentials,
		w *way) transport.Transport {
		return lean.New(w.leanDial(creds), &lean.Options{KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout})
	}},
	{name: "lean with the buffers of a board", variant: true, protocol: testbroker.MQTT, twins: true,
		make: func(creds *transport.Credentials, w *way) transport.Transport {
			return lean.New(w.leanDial(creds), &lean.Options{KeepAlive: w.KeepAlive, PingTimeout: w.PingTimeout,
				ReadBuffer: 4096 + 512, WriteBuffer: 1024})
		}},
	{name: "amqp", protocol: testbroker.AMQP, twins: true, batches: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return amqp.New(w.amqp())
	}},
	{name: "amqp, a message a transfer", variant: true, protocol: testbroker.AMQP, twins: true,
		make: func(_ *transport.Credentials,
			w *way) transport.Transport {
			o := w.amqp()
			o.Batch = 1
			return amqp.New(o)
		}},
	{name: "amqp, SASL PLAIN", variant: true, protocol: testbroker.AMQP, twins: true, batches: true, sasl: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			o := w.amqp()
			o.Auth = amqp.Plain
			return amqp.New(o)
		}},
	{name: "amqp, shared", protocol: testbroker.AMQP, twins: true, batches: true, shared: true,
		make: func(_ *transport.Credentials, w *way) transport.Transport {
			return amqp.NewMux(w.amqp())
		}},
	{name: "http", protocol: testbroker.HTTP, batches: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		return http.New(w.http())
	}},
	{name: "http, a message a request", variant: true, protocol: testbroker.HTTP, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		o := w.http()
		o.Batch = 1
		return http.New(o)
	}},
	{name: "http/2", variant: true, protocol: testbroker.HTTP, batches: true, make: func(_ *transport.Credentials,
		w *way) transport.Transport {
		o := w.http()
		o.HTTP2 = true
		return http.New(o)
	}},
}

func (w *way) leanDial(creds *transport.Credentials) lean.Dial {
	return leannet.Dialer(creds, &netopt.Options{TLS: w.TLS, Plaintext: w.Plaintext, Addr: w.Addr, Dial: w.Dial,
		WriteTimeout: w.WriteTimeout})
}

func (w *way) amqp() *amqp.Options {
	return &amqp.Options{Network: netopt.Options{TLS: w.TLS, Plaintext: w.Plaintext, Addr: w.Addr, Dial: w.Dial,
		WriteTimeout: w.WriteTimeout}}
}

func (w *way) http() *http.Options {
	return &http.Options{Network: netopt.Options{TLS: w.TLS, Plaintext: w.Plaintext, Addr: w.Addr, Dial: w.Dial},
		PollInterval: cmp.Or(w.Poll,
			5*time.Second)}
}

// ports are where a hub speaks a protocol, without TLS and with it.
var ports = map[testbroker.Protocol]struct{ plain, secure testbroker.Port }{
	testbroker.MQTT: {testbroker.PortMQTT, testbroker.PortMQTTS},
	testbroker.AMQP: {testbroker.PortAMQP, testbroker.PortAMQPS},
	testbroker.HTTP: {testbroker.PortHTTP, testbroker.PortHTTPS},
}

// inMemory reaches the hub without sockets.
func (e engine) inMemory(h *testbroker.Hub, secure bool) *way {
	if secure {
		return &way{TLS: h.ClientTLS(), Dial: h.Dial(ports[e.protocol].secure)}
	}
	return &way{Plaintext: true, Dial: h.Dial(ports[e.protocol].plain)}
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

// skipVariant skips a test with a variant of an engine, unless -all asks for it.
func (e engine) skipVariant(t *testing.T) {
	t.Helper()
	if e.variant && !*all {
		t.Skip("SKIPPED: a variant of another engine; go test ./internal/sim -all runs it")
	}
}
