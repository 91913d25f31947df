package mqtt_test

import (
	"context"
	"net"
	"testing"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	engines "github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Our engine and paho keep the same promises against a broker that is no hub, over topic maps and
// over the dialect of a made-up service.
func TestOurEngineWithAnotherBroker(t *testing.T) {
	for name, c := range map[string]struct {
		buffers int
		version engines.Protocol
	}{"growing buffers": {}, "fixed buffers": {buffers: 8192}, "MQTT 5": {version: engines.MQTT5(nil)}} {
		t.Run(name, func(t *testing.T) {
			run(t, engine{MQTT5: c.version != nil, New: func(dial dialFunc, o options) transport.Transport {
				own := func(ctx context.Context, _ *transport.Credentials) (engines.Conn, error) { return dial(ctx) }
				return engines.New(own, &engines.Options{Dialect: o.Dialect, Will: o.Will, CleanSession: o.CleanSession,
					AtMostOnce: o.AtMostOnce, Protocol: c.version, ReadBuffer: c.buffers, WriteBuffer: c.buffers})
			}})
		})
	}
}

func TestPahoWithAnotherBroker(t *testing.T) {
	run(t, engine{IDsFromOne: true, NoAnswers: true, New: func(dial dialFunc, o options) transport.Transport {
		return paho.New(&mqtt.Options{Dialect: o.Dialect, CleanSession: o.CleanSession, AtMostOnce: o.AtMostOnce,
			Will: o.Will, Network: netopt.Options{Plaintext: true,
				Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}})
	}})
}
