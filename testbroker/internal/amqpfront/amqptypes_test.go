package amqpfront_test

import (
	"testing"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// Clients without declared types send simple values as properties, and texts as bodies. A strict
// hub refuses them.
func TestTypesOfTelemetryOverAMQP(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, c := range map[string]struct {
		m      amqp.Message
		want   hubdata.Message
		strict string // condition; empty: accepted
	}{
		"strings": {amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": "x"}},
			hubdata.Message{Body: []byte{1}, Properties: []hubdata.Property{{Name: "a", Value: "x"}}}, ""},
		"integer": {amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": int32(-7)}},
			hubdata.Message{Body: []byte{1}, Properties: []hubdata.Property{{Name: "a", Value: "-7"}}}, "amqp:invalid-field"},
		"number": {amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": 21.5}},
			hubdata.Message{Body: []byte{1}, Properties: []hubdata.Property{{Name: "a", Value: "21.5"}}}, "amqp:invalid-field"},
		"boolean": {amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": true}},
			hubdata.Message{Body: []byte{1}, Properties: []hubdata.Property{{Name: "a", Value: "true"}}}, "amqp:invalid-field"},
		"time": {amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": at}},
			hubdata.Message{Body: []byte{1}, Properties: []hubdata.Property{{Name: "a", Value: "2030-01-02T03:04:05.0000000Z"}}},
			"amqp:invalid-field"},
		"null": {amqp.Message{Data: [][]byte{{1}}, ApplicationProperties: map[string]any{"a": nil}},
			hubdata.Message{Body: []byte{1}}, "amqp:invalid-field"},
		"text":     {amqp.Message{Value: "hello"}, hubdata.Message{Body: []byte("hello")}, "amqp:not-allowed"},
		"bytes":    {amqp.Message{Value: []byte{0, 1}}, hubdata.Message{Body: []byte{0, 1}}, "amqp:not-allowed"},
		"no value": {amqp.Message{Data: [][]byte{{}}}, hubdata.Message{Body: []byte{}}, ""},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			require.NoError(t, hubtest.LoginAMQP(t, h, d).Telemetry(d).Send(t.Context(), &c.m, nil))
			got := h.Messages()[0]
			require.Equal(t, string(c.want.Body), string(got.Body))
			require.Equal(t, c.want.Properties, got.Properties)

			h, d = hubtest.NewHub(t, &testbroker.Options{AMQP: testbroker.AMQPOptions{StrictTypes: true}})
			err := hubtest.LoginAMQP(t, h, d).Telemetry(d).Send(t.Context(), &c.m, nil)
			if c.strict == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, c.strict, hubtest.Condition(t, err))
			require.Zero(t, h.Len())
		})
	}
}
