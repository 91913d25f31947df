package interop

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
)

// TestModuleSDKWithADebugConnectionString has the official SDK and ours take the same variables,
// which are for modules outside of their runtime.
func TestModuleSDKWithADebugConnectionString(t *testing.T) {
	t.Parallel()
	e := newEdgeHub(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, e.hub.CAPEM(), 0o600))
	_, err := e.hub.AddModule(edgeID, "debug")
	require.NoError(t, err)
	environment := []string{"EdgeHubConnectionString=" + e.hub.ConnectionString(edgeID+"/debug"),
		"EdgeModuleCACertificateFile=" + file}

	theirs := startScript(t, "device.js", environment...)
	theirs.tell(map[string]any{"do": "ports", "forward": e.forward})
	theirs.next("done", "")
	for _, way := range sdkTransports {
		if way.web {
			continue
		}
		theirs.tell(map[string]any{"do": "module", "name": way.name, "transport": way.name})
		require.Empty(t, theirs.next("opened", way.name).Text)
		theirs.tell(map[string]any{"do": "output", "name": way.name, "output": "up",
			"messages": []map[string]any{{"payload": "x", "id": "theirs, " + way.name}}})
		require.Empty(t, theirs.next("sent", way.name).Text)
		theirs.tell(map[string]any{"do": "close", "name": way.name})
		require.Empty(t, theirs.next("closed", way.name).Text)
	}
	e.arrives("theirs, ", 4)

	for _, way := range goTransports {
		m, err := edge.FromEnvironment(&edge.Options{LookupEnv: workload.LookupEnv(environment)})
		require.NoError(t, err)
		network := m.Network
		network.Addr = e.addrs[way.port]
		c, err := device.New(m.Credentials, way.over(m.Credentials, network), &device.Options{RetryPolicy: fastPolicy{}})
		require.NoError(t, err)
		require.NoError(t, c.Open(soon(t)))
		require.NoError(t, c.Send(soon(t), &transport.Message{ID: "ours, " + way.name, Output: "up"}))
		require.NoError(t, c.Close())
	}
	e.arrives("ours, ", len(goTransports))
	require.Zero(t, e.daemon.Count(workload.CallAny))
}
