package edge_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// A daemon at a socket of the system, and at a port; its socket is gone for a while.
func TestRealSocketsOfTheDaemon(t *testing.T) {
	folder, err := os.MkdirTemp("", "edge") // t.TempDir is too long for the path of a socket
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	for network, addr := range map[string]string{"unix": filepath.Join(folder, "w.sock"), "tcp": "127.0.0.1:0"} {
		t.Run(network, func(t *testing.T) {
			h := hubfixture.Open(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{Name: "localhost"}}, "edge-1")
			_, err := h.AddModule("edge-1", "filter")
			require.NoError(t, err)
			daemon, err := workload.New(h, &workload.Options{GatewayHostName: "localhost"})
			require.NoError(t, err)
			defer func() { require.NoError(t, daemon.Close()) }()
			_, err = daemon.Listen(network, addr)
			require.NoError(t, err)
			gateway, err := h.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
			require.NoError(t, err)

			m, err := edge.FromEnvironment(&edge.Options{
				LookupEnv: workload.LookupEnv(daemon.Environment("edge-1", "filter"))})
			require.NoError(t, err)
			daemon.Stop()
			_, err = m.Credentials.NewToken(t.Context())
			require.ErrorIs(t, err, transport.Network)
			m.Network.Addr = gateway.String()
			failed := make(chan struct{}, 100)
			client, err := device.New(m.Credentials, mqtt.New(&mqtt.Options{Network: m.Network}),
				&device.Options{OnStatus: func(s device.Status) {
					if s.Reason == device.ReasonAttemptFailed && len(failed) < cap(failed) {
						failed <- struct{}{}
					}
				}})
			require.NoError(t, err)
			require.NoError(t, client.Start())
			select {
			case <-failed:
			case <-time.After(time.Minute):
				require.Fail(t, "no attempt failed")
			}
			require.NoError(t, daemon.Start())
			require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("x")}))
			require.NoError(t, h.WaitMessages(t.Context(), 1))
			require.NoError(t, client.Close())
		})
	}
}
