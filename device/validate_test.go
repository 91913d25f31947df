package device_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

func noDial(context.Context, *transport.Credentials) (engine.Conn, error) { panic("New dials") }

func TestNewRefusesWrongOptionsOfTheTransport(t *testing.T) {
	for name, row := range map[string]struct {
		transport transport.Transport
		text      string
	}{
		"mqtt":           {mqtt.New(&mqtt.Options{KeepAlive: -1}), "KeepAlive is out of range"},
		"mqtt dialect":   {mqtt.New(&mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "a/#"}}), `Telemetry "a/#" is no topic`},
		"engine":         {engine.New(noDial, &engine.Options{PingTimeout: -1}), "PingTimeout is negative"},
		"engine dialect": {engine.New(noDial, &engine.Options{Dialect: (*dialect.Topics)(nil)}), "Dialect is a nil"},
		"amqp":           {amqp.New(&amqp.Options{OperationTimeout: -1}), "OperationTimeout"},
		"amqp mux":       {amqp.NewMux(&amqp.Options{Auth: amqp.AuthPlain}), "a Mux needs CBS"},
		"http":           {http.New(&http.Options{Batch: -1}), "Batch"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := device.New(creds(), row.transport, nil)
			require.Nil(t, c)
			require.ErrorIs(t, err, transport.Invalid)
			require.ErrorContains(t, err, row.text)
		})
	}
}

// Hubs allow such ids. Over MQTT they would be wildcards in the topics, for which hubs close the
// connection.
func TestAnIDWithAWildcardIsRefusedByNewOverMQTTOnly(t *testing.T) {
	for _, id := range []string{"dev+1", "dev#1", "#", "+"} {
		for field, c := range map[string]*transport.Credentials{
			"DeviceID": {Host: "hub.example.test", DeviceID: id},
			"ModuleID": {Host: "hub.example.test", DeviceID: "dev-1", ModuleID: id},
		} {
			for name, tr := range map[string]transport.Transport{
				"mqtt": mqtt.New(nil), "engine": engine.New(noDial, nil),
				"engine, a small dialect": engine.New(noDial, &engine.Options{Dialect: dialect.HubMessages}),
				"topics": mqtt.New(&mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "{device}/{module}",
					ClientID: "c"}}),
			} {
				_, err := device.New(c, tr, nil)
				require.ErrorIs(t, err, transport.Invalid, "%s %s %s", name, field, id)
				require.ErrorContains(t, err, field+` "`+id+`"`, name)
				if name != "topics" {
					require.ErrorContains(t, err, "use AMQP or HTTPS, or choose another id", name)
				}
			}
			for name, tr := range map[string]transport.Transport{
				"amqp": amqp.New(nil), "http": http.New(nil),
				"topics of its own": mqtt.New(&mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "a", ClientID: "c"}}),
			} {
				_, err := device.New(c, tr, nil)
				require.NoError(t, err, "%s %s %s", name, field, id)
			}
		}
	}
}
