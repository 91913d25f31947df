package leannet

import (
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/broker"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// ParseBroker returns credentials and options for the broker with this URL:
//
//	creds, network, opts, err := leannet.ParseBroker("mqtts://user:password@broker.example:8883/" +
//		"?device=pump-1&telemetry=site/{device}/up&commands=site/{device}/down/%23")
//	client, err := device.New(creds, lean.New(leannet.Dialer(creds, network), opts), nil)
//
// It is mqtt.ParseBroker for the engine of package lean, with two differences: version=5 selects
// MQTT 5, and URLs with ws and wss need an import of package mqttws in the program.
func ParseBroker(url string) (creds *transport.Credentials, network *netopt.Options, opts *lean.Options, err error) {
	s, err := broker.Parse(url, broker.WebSocket)
	if err != nil {
		return nil, nil, nil, err
	}
	opts = &lean.Options{Dialect: s.Topics, KeepAlive: s.KeepAlive, CleanSession: s.CleanSession, Will: s.Will}
	if s.MQTT5 {
		opts.Protocol = lean.MQTT5(&lean.MQTT5Options{SessionExpiry: s.SessionExpiry})
	}
	return s.Creds, &s.Network, opts, nil
}
