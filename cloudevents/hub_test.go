package cloudevents_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A module sends an event by an output and receives one by an input.
func TestEventsOfAModuleHaveAnOutput(t *testing.T) {
	event := cloudevents.Event{ID: "b-1", Source: "/boiler", Type: "com.example.reading", DataContentType: "text/plain",
		Data: []byte("21.5")}
	for name, engine := range map[string]func(*transport.Credentials, netopt.Options) transport.Transport{
		"paho": func(_ *transport.Credentials, n netopt.Options) transport.Transport {
			return mqtt.New(&mqtt.Options{Network: n})
		},
		"lean": func(c *transport.Credentials, n netopt.Options) transport.Transport {
			return lean.New(leannet.Dialer(c, &n), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := hubfixture.New(t)
				h.BecomeModule(t)
				creds := h.CredsWith(t, "")
				c, err := device.New(creds, engine(creds, netopt.Options{Plaintext: true,
					Dial: h.Dial(testbroker.PortMQTT)}), nil)
				require.NoError(t, err)
				defer c.Close()
				got := make(chan cloudevents.Event, 1)
				c.HandleInput("events", func(_ context.Context, m *transport.Message) error {
					e, err := cloudevents.Read(m)
					e.Data = append([]byte(nil), e.Data...)
					got <- e
					return err
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				require.NoError(t, c.Open(ctx))
				body, err := json.Marshal(event)
				require.NoError(t, err)
				require.NoError(t, c.Send(ctx, &transport.Message{ContentType: cloudevents.ContentType, Body: body,
					Output: "alarms", System: &transport.SystemProperties{UserID: "me"}}))
				log := h.Messages()
				require.Len(t, log, 1)
				require.Equal(t, "alarms me", log[0].Output+" "+log[0].UserID)
				sent, err := cloudevents.Read(&transport.Message{ContentType: log[0].ContentType, Body: log[0].Body})
				require.NoError(t, err)
				require.Equal(t, event, sent)

				require.NoError(t, h.SendInput("dev-1/mod-1", "events", hubdata.C2D{ContentType: cloudevents.ContentType,
					Body: log[0].Body}))
				require.Equal(t, event, <-got)
			})
		})
	}
}

func TestAnEnvelopeHasNoPlaceForWhatIsAHubs(t *testing.T) {
	for field, m := range map[string]*transport.Message{
		"Output": {Output: "o"}, "System.Schema": {System: &transport.SystemProperties{Schema: "s"}},
		"System.UserID": {System: &transport.SystemProperties{UserID: "u"}},
	} {
		m.ID = "1"
		for _, properties := range []bool{false, true} {
			err := envelope.Seal(new(transport.Message), m, properties)
			require.ErrorIs(t, err, transport.Unsupported)
			require.ErrorContains(t, err, "message "+field+" has no place over CloudEvents")
		}
	}
	require.NoError(t, envelope.Seal(new(transport.Message), &transport.Message{ID: "1",
		System: new(transport.SystemProperties)}, true))
}
