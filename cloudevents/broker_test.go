package cloudevents_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A program sends plain messages, and both engines carry events in both directions.
func TestEventsTravelThroughABroker(t *testing.T) {
	topics := &dialect.Topics{
		Telemetry: "devices/{device}/up/reading", Commands: []string{"devices/{device}/down/#"}, Envelope: envelope,
	}
	for name, engine := range map[string]func(*transport.Credentials, netopt.Options) transport.Transport{
		"paho": func(_ *transport.Credentials, n netopt.Options) transport.Transport {
			return paho.New(&mqtt.Options{Network: n, Dialect: topics})
		},
		"mqtt": func(c *transport.Credentials, n netopt.Options) transport.Transport {
			return mqtt.New(&mqtt.Options{Network: n, Dialect: topics})
		},
		"mqtt, MQTT 5": func(c *transport.Credentials, n netopt.Options) transport.Transport {
			return mqtt.New(&mqtt.Options{Network: n, Dialect: topics, Protocol: mqtt.MQTT5(nil)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, err := testbroker.New(&testbroker.Options{Broker: &testbroker.BrokerOptions{}})
				require.NoError(t, err)
				defer hub.Close()
				d, err := hub.AddDevice("boiler")
				require.NoError(t, err)
				creds := &transport.Credentials{Host: "broker.example", DeviceID: d.ID, UserName: d.ID,
					Token: transport.FixedToken(d.PrimaryKey)}
				client, err := device.New(creds, engine(creds, netopt.Options{Plaintext: true,
					Dial: hub.Dial(testbroker.PortMQTT)}), nil)
				require.NoError(t, err)
				defer client.Close()
				commands := make(chan transport.Message, 1)
				client.HandleMessages(func(_ context.Context, m *transport.Message) error {
					got := *m
					got.Body = append([]byte(nil), m.Body...)
					commands <- got
					return nil
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, client.Open(ctx))
				m := &transport.Message{ID: "b-1", ContentType: "application/json", Created: time.Now(),
					Properties: []transport.Property{{Name: "level", Value: "high"}}, Body: []byte(`{"celsius":21.5}`)}
				require.NoError(t, client.Send(ctx, m))
				log := hub.Messages()
				require.Len(t, log, 1)
				sent := &transport.Message{ContentType: log[0].ContentType, Body: log[0].Body}
				for _, p := range log[0].Properties {
					sent.Properties = append(sent.Properties, transport.Property{Name: p.Name, Value: p.Value})
				}
				if name == "mqtt, MQTT 5" {
					require.Equal(t, m.Body, sent.Body, "binary mode")
				}
				got, err := cloudevents.Read(sent)
				require.NoError(t, err)
				require.Equal(t, []any{"b-1", envelope.Source, envelope.Type, m.Created.UTC(), "application/json",
					map[string]any{"level": "high"}, m.Body}, []any{got.ID(), got.Source(), got.Type(), got.Time(),
					got.DataContentType(), got.Extensions(), got.Data()})

				m.Properties[0].Name = "Level"
				require.ErrorContains(t, client.Send(ctx, m), `cloudevents: "Level": a name is of lower-case letters and digits`)

				require.NoError(t, hub.SendC2D(d.ID, hubdata.C2D{Body: []byte(
					`{"specversion":"1.0","id":"c-1","source":"/s","type":"blink","correlationid":"k","data":{"times":3}}`)}))
				command := <-commands
				require.Equal(t, transport.Message{ID: "c-1", CorrelationID: "k", ContentType: "application/json",
					Properties: []transport.Property{{Name: "source", Value: "/s"}, {Name: "type", Value: "blink"}},
					Body:       []byte(`{"times":3}`), Topic: "devices/boiler/down"}, command)
			})
		})
	}
}
