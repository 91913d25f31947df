package sim_test

import (
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport/mqtt/mqttws"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// carrier carries registrations with the provisioning service over one protocol.
type carrier struct {
	name          string
	protocol      hubdata.Protocol
	plain, secure testbroker.Port
	make          func(o *netopt.Options) provisioning.Carrier
}

var carriers = []carrier{
	{"https", hubdata.HTTP, testbroker.PortHTTP, testbroker.PortHTTPS, func(o *netopt.Options) provisioning.Carrier {
		return dpshttp.New(o)
	}},
	{"mqtt", hubdata.MQTT, testbroker.PortMQTT, testbroker.PortMQTTS, func(o *netopt.Options) provisioning.Carrier {
		return dpsmqtt.New(o)
	}},
	{"mqtt-ws", hubdata.MQTT, testbroker.PortHTTP, testbroker.PortHTTPS, func(o *netopt.Options) provisioning.Carrier {
		own := *o
		own.Tunnel = mqttws.New(nil)
		return dpsmqtt.New(&own)
	}},
}

// options returns the network settings for the service, without sockets.
func (c carrier) options(d *testbroker.DPS, secure bool) *netopt.Options {
	if secure {
		return &netopt.Options{TLS: d.ClientTLS(), Dial: d.Dial(c.secure)}
	}
	return &netopt.Options{Plaintext: true, Dial: d.Dial(c.plain)}
}
