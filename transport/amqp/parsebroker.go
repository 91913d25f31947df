package amqp

import (
	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/transport"
)

// ParseBroker returns credentials and options for the AMQP 1.0 broker with this URL:
//
//	creds, opts, err := amqp.ParseBroker("amqps://user:password@broker.example:5671/" +
//		"?device=pump-1&telemetry=/queues/telemetry&commands=/queues/{device}")
//	client, err := device.New(creds, amqp.New(opts), nil)
//
// The schemes are amqp and amqps (TLS). The parameters are device, module, telemetry and commands.
// Opts may be changed before New, for example for trusted roots or a client certificate in Network.
//
// The error is a *transport.Error of Kind Invalid that names the part of the URL and the fix. It
// shows nothing of the URL, because the URL has a password.
func ParseBroker(url string) (creds *transport.Credentials, opts *Options, err error) {
	u, err := brokerurl.Parse(brokerurl.AMQP, url)
	if err != nil {
		return nil, nil, err
	}
	a := &Addresses{Telemetry: u.Telemetry}
	if len(u.Commands) > 0 {
		a.Commands = u.Commands[0]
	}
	return u.Credentials(), &Options{Network: u.Network(), Addresses: a}, nil
}
