package http_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A module and a leaf device send telemetry through an edge gateway, whose certificate they verify.
// While the gateway is off-line it still takes messages; while it restarts, they wait in the
// clients. Everything arrives at the hub, in order.
func TestTelemetryThroughAnEdgeGateway(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{Name: "gateway.local"}}, "edge-1",
			"leaf-1")
		_, err := hub.AddModule("edge-1", "mod-a")
		require.NoError(t, err)
		clients := map[string]*device.Client{}
		for _, id := range []string{"edge-1/mod-a", "leaf-1"} {
			creds, err := device.ParseConnectionString(hub.ConnectionString(id))
			require.NoError(t, err)
			require.Equal(t, "gateway.local", creds.GatewayHost)
			tr := hubhttp.New(&hubhttp.Options{Network: netopt.Options{Dial: hub.Dial(testbroker.PortHTTPS),
				TLS: hub.ClientTLS()}})
			c, err := device.New(creds, tr, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.Open(t.Context()))
			clients[id] = c
		}
		send := func(body string) {
			for id, c := range clients {
				require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: []byte(body),
					System: &transport.SystemProperties{UserID: "user of " + id}}, nil))
			}
		}
		flush := func() {
			for _, c := range clients {
				require.NoError(t, c.Flush(t.Context()))
			}
		}
		send("1")
		flush()
		require.NoError(t, hub.SetOffline(true))
		send("2")
		flush() // the gateway has stored it
		require.NoError(t, hub.StopGateway())
		send("3")
		time.Sleep(time.Minute)
		require.NoError(t, hub.StartGateway())
		flush()
		require.NoError(t, hub.SetOffline(false))
		synctest.Wait()
		time.Sleep(time.Minute)
		got := map[string]string{}
		for _, m := range hub.Messages() {
			id := m.DeviceID
			if m.ModuleID != "" {
				id += "/" + m.ModuleID
			}
			require.Equal(t, "user of "+id, m.UserID)
			got[id] += string(m.Body)
		}
		require.Equal(t, map[string]string{"edge-1/mod-a": "123", "leaf-1": "123"}, got)

		// an output would be lost: a gateway routes it, and HTTPS cannot say it
		err = clients["edge-1/mod-a"].Send(t.Context(), &transport.Message{Output: "out"})
		require.ErrorIs(t, err, transport.Unsupported)
		require.False(t, errfilter.Retryable(err))
		_, err = clients["edge-1/mod-a"].GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Unsupported)
	})
}
