package mqtt

import (
	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/transport"
)

// ParseBroker returns credentials and options for the broker with this URL:
//
//	creds, opts, err := mqtt.ParseBroker("mqtts://user:password@broker.example:8883/" +
//		"?device=pump-1&telemetry=site/{device}/up&commands=site/{device}/down/%23")
//	client, err := device.New(creds, mqtt.New(opts), nil)
//
// The schemes are mqtt, mqtts (TLS), ws and wss, with their aliases tcp, ssl, tls, tcps and
// mqtt+ssl; ws and wss need an import of package websocket in the program. version=5 selects MQTT
// 5. The page docs/brokers.md lists the parameters. Opts has a *dialect.Topics as its Dialect. It
// may be changed before New, for example for trusted roots or a client certificate in Network, or
// for another dialect.
//
// The error is a *transport.Error of Kind Invalid that names the part of the URL and the fix. It
// shows nothing of the URL, because the URL has a password. Topics are checked by each Dial.
func ParseBroker(url string) (creds *transport.Credentials, opts *Options, err error) {
	u, err := brokerurl.Parse(brokerurl.MQTT, url)
	if err != nil {
		return nil, nil, err
	}
	opts = &Options{Network: u.Network(), KeepAlive: u.KeepAlive, CleanSession: u.CleanSession, Will: message(u.Will),
		Dialect: &Topics{Telemetry: u.Telemetry, Commands: u.Commands, ClientID: u.ClientID, Retain: u.Retain,
			AtMostOnce: u.AtMostOnce, Birth: message(u.Birth)}}
	if u.WebSocket {
		if brokerurl.WebSocket == nil {
			return nil, nil, brokerurl.Invalid("ws and wss need package websocket, which links net/http; add " +
				"import _ \"github.com/hubline-iot/hubline/transport/websocket\" to the program")
		}
		opts.Network.Tunnel = brokerurl.WebSocket(u.Path)
	}
	if u.MQTT5 {
		opts.Protocol = MQTT5(&MQTT5Options{SessionExpiry: u.SessionExpiry})
	}
	return u.Credentials(), opts, nil
}

// message returns m as a message of its own, nil if there is none.
func message(m brokerurl.Message) *transport.Message {
	if m.Topic == "" {
		return nil
	}
	return &transport.Message{Topic: m.Topic, Body: []byte(m.Payload), Retain: m.Retain}
}
