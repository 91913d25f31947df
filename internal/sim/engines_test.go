package sim_test

import (
	"testing"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
)

// An engine makes a transport to the same place by the same settings. The whole system is tried with each.
type engine struct {
	name string
	make func(creds *transport.Credentials, o *mqtt.Options) transport.Transport
	// amqp: it speaks AMQP; batches: with several messages in a transfer.
	amqp, batches bool
}

var engines = []engine{
	{name: "paho", make: func(_ *transport.Credentials, o *mqtt.Options) transport.Transport { return mqtt.New(o) }},
	{name: "lean", make: func(creds *transport.Credentials, o *mqtt.Options) transport.Transport {
		dial := leannet.Dialer(creds, &leannet.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout})
		return lean.New(dial, &lean.Options{KeepAlive: o.KeepAlive, PingTimeout: o.PingTimeout})
	}},
	{name: "lean with the buffers of a board", make: func(creds *transport.Credentials, o *mqtt.Options) transport.Transport {
		dial := leannet.Dialer(creds, &leannet.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout})
		return lean.New(dial, &lean.Options{KeepAlive: o.KeepAlive, PingTimeout: o.PingTimeout, ReadBuffer: 4096 + 512, WriteBuffer: 1024})
	}},
}

// others do not speak MQTT: they are tried where the protocol does not matter.
var others = []engine{
	{name: "amqp", amqp: true, batches: true, make: func(_ *transport.Credentials, o *mqtt.Options) transport.Transport {
		return amqp.New(&amqp.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout})
	}},
	{name: "amqp, a message a transfer", amqp: true, make: func(_ *transport.Credentials, o *mqtt.Options) transport.Transport {
		return amqp.New(&amqp.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout, Batch: 1})
	}},
	{name: "amqp, shared", amqp: true, batches: true, make: func(_ *transport.Credentials, o *mqtt.Options) transport.Transport {
		return amqp.NewMux(&amqp.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout})
	}},
}

// options reach the hub in memory.
func (e engine) options(h *testbroker.Hub, secure bool) *mqtt.Options {
	switch {
	case e.amqp && secure:
		return &mqtt.Options{TLS: h.ClientTLS(), Dial: h.DialAMQPTLSPort}
	case e.amqp:
		return &mqtt.Options{Plaintext: true, Dial: h.DialAMQP}
	case secure:
		return &mqtt.Options{TLS: h.ClientTLS(), Dial: h.DialTLSPort}
	}
	return &mqtt.Options{Plaintext: true, Dial: h.Dial}
}

// withEachProtocol runs f once for each engine, of all protocols.
func withEachProtocol(t *testing.T, f func(t *testing.T, e engine)) {
	withEachEngine(t, f)
	for _, e := range others {
		t.Run(e.name, func(t *testing.T) { f(t, e) })
	}
}

// withEachEngine runs f once for each engine that speaks MQTT.
func withEachEngine(t *testing.T, f func(t *testing.T, e engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { f(t, e) })
	}
}
