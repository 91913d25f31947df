package sim_test

import (
	"slices"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsamqp"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"

	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// carrier carries registrations with the provisioning service over one protocol.
type carrier struct {
	name          string
	protocol      hubdata.Protocol
	plain, secure testbroker.Port
	make          func(o *netopt.Options) provisioning.Carrier
}

var carriers = slices.Concat(
	[]carrier{{"https", hubdata.HTTP, testbroker.PortHTTP, testbroker.PortHTTPS,
		func(o *netopt.Options) provisioning.Carrier { return dpshttp.New(o) }}},
	withTunnel("mqtt", hubdata.MQTT, testbroker.PortMQTT, testbroker.PortMQTTS, websocket.MQTT(nil),
		func(o *netopt.Options) provisioning.Carrier { return dpsmqtt.New(o) }),
	withTunnel("amqp", hubdata.AMQP, testbroker.PortAMQP, testbroker.PortAMQPS, websocket.AMQP(nil),
		func(o *netopt.Options) provisioning.Carrier { return dpsamqp.New(o) }),
)

// withTunnel returns a carrier on sockets, and the same over WebSocket.
func withTunnel(name string, protocol hubdata.Protocol, plain, secure testbroker.Port, tunnel netopt.Tunnel,
	on func(o *netopt.Options) provisioning.Carrier) []carrier {
	return []carrier{
		{name, protocol, plain, secure, on},
		{name + "-ws", protocol, testbroker.PortHTTP, testbroker.PortHTTPS, func(o *netopt.Options) provisioning.Carrier {
			own := *o
			own.Tunnel = tunnel
			return on(&own)
		}},
	}
}

// options returns the network settings for the service, without sockets.
func (c carrier) options(d *testbroker.DPS, secure bool) *netopt.Options {
	if secure {
		return &netopt.Options{TLS: d.ClientTLS(), Dial: d.Dial(c.secure)}
	}
	return &netopt.Options{Plaintext: true, Dial: d.Dial(c.plain)}
}
