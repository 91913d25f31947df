package sim_test

import (
	"testing"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
)

// An engine makes a transport to the same place by the same settings. The whole system is tried with each.
type engine struct {
	name string
	make func(creds *transport.Credentials, o *mqtt.Options) transport.Transport
}

var engines = []engine{
	{"paho", func(_ *transport.Credentials, o *mqtt.Options) transport.Transport { return mqtt.New(o) }},
	{"lean", func(creds *transport.Credentials, o *mqtt.Options) transport.Transport {
		dial := leannet.Dialer(creds, &leannet.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout})
		return lean.New(dial, &lean.Options{KeepAlive: o.KeepAlive, PingTimeout: o.PingTimeout})
	}},
	{"lean with the buffers of a board", func(creds *transport.Credentials, o *mqtt.Options) transport.Transport {
		dial := leannet.Dialer(creds, &leannet.Options{TLS: o.TLS, Plaintext: o.Plaintext, Addr: o.Addr, Dial: o.Dial, WriteTimeout: o.WriteTimeout})
		return lean.New(dial, &lean.Options{KeepAlive: o.KeepAlive, PingTimeout: o.PingTimeout, ReadBuffer: 4096 + 512, WriteBuffer: 1024})
	}},
}

// withEachEngine runs f once for each.
func withEachEngine(t *testing.T, f func(t *testing.T, e engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) { f(t, e) })
	}
}
