// Package broker makes the options of both engines of a broker's URL.
package broker

import (
	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// WebSocket returns a tunnel to a path. Package mqttws sets it when the program starts, so that
// programs of package leannet link net/http only with that package.
var WebSocket func(path string) netopt.Tunnel

// Settings are what a URL says, for either engine.
type Settings struct {
	*brokerurl.URL
	Creds   *transport.Credentials
	Network netopt.Options
	Topics  *dialect.Topics
	Will    *transport.Message
}

// Parse parses the URL of an MQTT broker. Without webSocket it refuses URLs with ws and wss.
func Parse(url string, webSocket func(path string) netopt.Tunnel) (*Settings, error) {
	u, err := brokerurl.Parse(brokerurl.MQTT, url)
	if err != nil {
		return nil, err
	}
	s := &Settings{URL: u, Creds: u.Credentials(), Network: u.Network(), Will: message(u.Will)}
	s.Topics = &dialect.Topics{Telemetry: u.Telemetry, Commands: u.Commands, ClientID: u.ClientID, Retain: u.Retain,
		AtMostOnce: u.AtMostOnce, Birth: message(u.Birth)}
	if u.WebSocket {
		if webSocket == nil {
			return nil, brokerurl.Invalid("ws and wss need package mqttws, which links net/http; add " +
				"import _ \"github.com/hubline-iot/hubline/transport/mqtt/mqttws\" to the program")
		}
		s.Network.Tunnel = webSocket(u.Path)
	}
	return s, nil
}

// message returns m as a message of its own, nil if there is none.
func message(m brokerurl.Message) *transport.Message {
	if m.Topic == "" {
		return nil
	}
	return &transport.Message{Topic: m.Topic, Body: []byte(m.Payload), Retain: m.Retain}
}
