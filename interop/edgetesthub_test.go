package interop

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// The gateway and the workload API, which is on a TCP port, are one separate process.
func TestModuleSDKWithTesthub(t *testing.T) {
	t.Parallel()
	nodeDir(t) // before the build
	h := startTesthub(t, "-host", hostName, "-gateway", gatewayName, "-device", leafID, "-module", edgeID+"/mqtt",
		"-module", edgeID+"/amqp", "-module", edgeID+"/ours", "-route", "FROM /messages/* INTO $upstream",
		"-route", `FROM /messages/modules/mqtt/outputs/* INTO BrokeredEndpoint("/modules/ours/inputs/of-node")`,
		"-route", `FROM /messages/modules/amqp/outputs/* INTO BrokeredEndpoint("/modules/ours/inputs/of-node")`,
		"-route", `FROM /messages/modules/ours/outputs/mqtt INTO BrokeredEndpoint("/modules/mqtt/inputs/of-ours")`,
		"-route", `FROM /messages/modules/ours/outputs/amqp INTO BrokeredEndpoint("/modules/amqp/inputs/of-ours")`)
	require.Len(t, h.Modules, 3)
	forward := [][]int{{8883, h.Ports["mqtt"]}, {5671, h.Ports["amqp"]}, {443, h.Ports["https"]}}

	m, err := edge.FromEnvironment(&edge.Options{LookupEnv: workload.LookupEnv(h.environment(t, "ours"))})
	require.NoError(t, err)
	m.Network.Addr = loopback(h.Ports["mqtt"])
	client, err := device.New(m.Credentials, mqtt.New(&mqtt.Options{Network: m.Network}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	ours := &goModule{name: "ours", client: client}
	client.HandleInput("of-node", ours.take)
	require.NoError(t, client.HandleMethod("echo", ours.echo))
	require.NoError(t, client.Open(soon(t)))
	trust, err := os.ReadFile(h.CA)
	require.NoError(t, err)

	for _, name := range []string{"mqtt", "amqp"} {
		c := &hubClient{startScript(t, "device.js", h.environment(t, name)...), h, name}
		c.tell(map[string]any{"do": "ports", "forward": forward})
		c.next("done", "")
		c.do("module", "opened", object{"transport": name})
		c.tell(map[string]any{"do": "inputs", "name": name})
		c.do("output", "sent", object{"output": "up", "messages": []object{{"payload": name, "id": name}}})
		require.Equal(t, name, string(ours.waitFor(t, name, 1)[0].Body))
		require.NoError(t, client.Send(soon(t), &transport.Message{Output: name, Body: []byte("to " + name)}))
		require.Equal(t, "to "+name, c.next("input", name).Payload)

		c.tell(map[string]any{"do": "open", "name": "leaf", "transport": name,
			"connectionString": h.Devices[0].ConnectionString, "trust": string(trust)})
		require.Empty(t, c.next("opened", "leaf").Text)
		c.tell(map[string]any{"do": "invoke", "name": name, "device": edgeID, "module": "ours", "params": object{
			"methodName": "echo", "payload": 5, "responseTimeoutInSeconds": 20, "connectTimeoutInSeconds": 20}})
		require.JSONEq(t, `{"module":"ours","given":5}`, c.next("invoked", name).Payload)
		h.ask(t, "GET", fmt.Sprintf("/devices/%s%%2F%s/inputs/wait?state=completed&count=1&within=30s", edgeID, name), "")
	}
	h.ask(t, "GET", fmt.Sprintf("/devices/%s%%2Fours/inputs/wait?state=completed&count=2&within=30s", edgeID), "")
	require.NotZero(t, h.ask(t, "GET", "/workload", "")["calls"].(map[string]any)["Sign"])
	h.end()
	require.True(t, h.cmd.ProcessState.Success(), h.cmd.ProcessState)
	require.Equal(t, 4, h.told["message"])
}

// environment returns the environment of a module.
func (h *testhub) environment(t testing.TB, module string) []string {
	t.Helper()
	for _, m := range h.Modules {
		if m.Module == edgeID+"/"+module {
			return m.Environment
		}
	}
	t.Fatalf("no module %s in %+v", module, h.Modules)
	return nil
}
