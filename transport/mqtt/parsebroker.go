package mqtt

import (
	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/internal/websock"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/broker"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// ParseBroker returns credentials and options for the broker with this URL:
//
//	creds, opts, err := mqtt.ParseBroker("mqtts://user:password@broker.example:8883/" +
//		"?device=pump-1&telemetry=site/{device}/up&commands=site/{device}/down/%23")
//	client, err := device.New(creds, mqtt.New(opts), nil)
//
// The schemes are mqtt, mqtts (TLS), ws and wss, with their aliases tcp, ssl, tls, tcps and
// mqtt+ssl. The page docs/brokers.md lists the parameters. Opts has a *dialect.Topics as its
// Dialect. It may be changed before New, for example for trusted roots or a client certificate in
// Network, or for another dialect.
//
// The error is a *transport.Error of Kind Invalid that names the part of the URL and the fix. It
// shows nothing of the URL, because the URL has a password. Topics are checked by each Dial.
func ParseBroker(url string) (creds *transport.Credentials, opts *Options, err error) {
	s, err := broker.Parse(url, func(path string) netopt.Tunnel {
		return websock.New(websock.MQTT, &websock.Options{Path: path})
	})
	switch {
	case err != nil:
		return nil, nil, err
	case s.MQTT5:
		return nil, nil, brokerurl.Invalid("version is 5, which package mqtt does not speak; use leannet.ParseBroker, or " +
			"write version=3.1.1")
	}
	return s.Creds, &Options{Network: s.Network, Dialect: s.Topics, KeepAlive: s.KeepAlive, CleanSession: s.CleanSession,
		Will: s.Will}, nil
}
