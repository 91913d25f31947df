package nexthub_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// creds are those of the device of inBubble.
func creds() *transport.Credentials {
	return &transport.Credentials{Host: testbroker.DefaultHostName, DeviceID: "dev-1"}
}

// inBubble runs a test in fake time, with a hub that has the MQTT v5 profile and the device dev-1.
func inBubble(t *testing.T, o testbroker.MQTTv5Options, test func(t *testing.T, h *testbroker.Hub)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		h, err := testbroker.New(&testbroker.Options{MQTTv5: &o})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		_, err = h.AddDevice("dev-1")
		require.NoError(t, err)
		test(t, h)
	})
}

// options are those of a transport to h without TLS.
func options(h *testbroker.Hub, d *nexthub.Hub) *mqtt.Options {
	return &mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTT), Plaintext: true}, Dialect: d}
}

// client returns a client that is closed with the test.
func client(t *testing.T, h *testbroker.Hub, d *nexthub.Hub, o *device.Options) *device.Client {
	t.Helper()
	c, err := device.New(creds(), mqtt.New(options(h, d)), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func open(t *testing.T, c *device.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.NoError(t, c.Open(ctx))
}

func TestOneProgramServesBothKindsOfHub(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		c := client(t, h, &nexthub.Hub{}, nil)
		var desired []device.Desired
		require.NoError(t, c.HandleDesired(func(_ context.Context, d device.Desired) {
			d.JSON = append([]byte(nil), d.JSON...)
			desired = append(desired, d)
		}))
		require.NoError(t, c.HandleMethod("sum", func(_ context.Context, m *device.MethodCall) (int, []byte) {
			return 200, append([]byte("1"), m.Body...)
		}))
		open(t, c)
		require.NoError(t, c.Send(t.Context(), &transport.Message{ID: "m-1", Body: []byte("21.5")}))
		require.Equal(t, "ih/dev-1/srv/telemetry", h.Messages()[0].Topic)

		version, err := c.PatchReported(t.Context(), []byte(`{"a":1}`))
		require.NoError(t, err)
		require.EqualValues(t, 2, version)
		_, err = h.PatchDesired("dev-1", `{"fan":43}`)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, desired, 2)
		require.True(t, desired[0].Full)
		require.JSONEq(t, `{"fan":43,"$version":2}`, string(desired[1].JSON))
		twin, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		require.JSONEq(t, `{"fan":43,"$version":2}`, string(twin.Desired))
		require.JSONEq(t, `{"a":1,"$version":2}`, string(twin.Reported))

		r, err := h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "sum", Payload: []byte("23")})
		require.NoError(t, err)
		require.Equal(t, 200, r.Status)
		require.Equal(t, "123", string(r.Payload))
		_, err = h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "other"})
		require.Error(t, err)
	})
}

// A hub that breaks MQTT between CONNACK and birth-ack is tried again: it has shown that it speaks
// it.
func TestAViolationBeforeTheBirthAckIsRetried(t *testing.T) {
	kinds := []fault.Kind{fault.GarbageOnConnect, fault.LongSuback, fault.ShortSuback, fault.GarbageOnSubscribe}
	for _, kind := range kinds {
		inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
			in := h.Inject(fault.Fault{Kind: kind})
			c := client(t, h, &nexthub.Hub{}, nil)
			open(t, c)
			require.Equal(t, 1, in.Fired(), kind)
		})
	}
}
