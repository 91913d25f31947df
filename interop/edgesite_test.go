package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"

	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

const (
	gatewayName = "gateway.test"
	edgeID      = "edge-1" // the edge device
	nodeModule  = "node"   // its module with the official SDK; the others are in goTransports
	leafID      = "leaf-1"
)

// goTransports are the transports of our modules, and their names.
var goTransports = []struct {
	name string
	over func(creds *transport.Credentials, n netopt.Options) transport.Transport
	port testbroker.Port
	web  func() netopt.Tunnel
}{
	{"mqtt", func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: n})
	}, testbroker.PortMQTTS, func() netopt.Tunnel { return websocket.MQTT(nil) }},
	{"amqp", func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return amqp.New(&amqp.Options{Network: n})
	}, testbroker.PortAMQPS, func() netopt.Tunnel { return websocket.AMQP(nil) }},
}

// edgeSite is a gateway in front of a hub, the daemon of its runtime on a Unix socket, and one
// process with the official SDK, which is nodeModule and a leaf device. Our modules exchange
// messages with nodeModule, each by routes of its own. All messages go to the hub too.
type edgeSite struct {
	*sdk
	daemon  *workload.Server
	addrs   map[testbroker.Port]string
	forward [][]int // the service's ports and the gateway's
	ours    []*goModule
	module  *member // nodeModule
	leaf    *member
}

// newEdgeHub starts the gateway and the daemon, without modules.
func newEdgeHub(t testing.TB) *edgeSite {
	e := &edgeSite{addrs: make(map[testbroker.Port]string)}
	routes := []string{"FROM /messages/* INTO $upstream"}
	for _, g := range goTransports {
		routes = append(routes,
			fmt.Sprintf(`FROM /messages/modules/%s/outputs/to-%s INTO BrokeredEndpoint("/modules/%s/inputs/of-node")`,
				nodeModule, g.name, g.name),
			fmt.Sprintf(`FROM /messages/modules/%s/outputs/to-node INTO BrokeredEndpoint("/modules/%s/inputs/of-%s")`,
				g.name, nodeModule, g.name))
	}
	hub := hubfixture.Open(t, &testbroker.Options{Gateway: &testbroker.GatewayOptions{Name: gatewayName,
		DeviceID: edgeID, Routes: routes}}, edgeID)
	for service, p := range map[int]testbroker.Port{
		8883: testbroker.PortMQTTS, 5671: testbroker.PortAMQPS, 443: testbroker.PortHTTPS,
	} {
		addr, err := hub.Listen(p, "127.0.0.1:0")
		require.NoError(t, err)
		e.addrs[p] = addr.String()
		e.forward = append(e.forward, []int{service, addr.(*net.TCPAddr).Port})
	}
	e.sdk = &sdk{script: &script{t: t}, hub: hub}
	e.serveWorkload(t)
	return e
}

// newEdgeSite starts it all. With a WebSocket transport of the official SDK, our modules use
// WebSocket too.
func newEdgeSite(t testing.TB, way sdkTransport) *edgeSite {
	e := newEdgeHub(t)
	for i := range goTransports {
		e.ours = append(e.ours, e.openOurs(t, i, way.service == 443))
	}
	_, err := e.hub.AddModule(edgeID, nodeModule)
	require.NoError(t, err)
	e.startNode(t, way)
	e.module = &member{sdk: e.sdk, name: "module", id: edgeID + "/" + nodeModule}
	leaf, err := e.hub.AddDevice(leafID)
	require.NoError(t, err)
	require.Equal(t, gatewayName, leaf.GatewayHostName)
	e.open("leaf", leaf, nil)
	e.leaf = &member{sdk: e.sdk, name: "leaf", id: leafID}
	return e
}

// startNode starts the process of the official SDK with the environment of nodeModule, and opens
// that module.
func (e *edgeSite) startNode(t testing.TB, way sdkTransport) {
	e.sdk = &sdk{startScript(t, "device.js", e.daemon.Environment(edgeID, nodeModule)...), way, e.hub}
	e.tell(map[string]any{"do": "ports", "forward": e.forward})
	e.next("done", "")
	e.tell(map[string]any{"do": "module", "name": "module", "transport": way.name})
	require.Empty(t, e.next("opened", "module").Text)
}

// serveWorkload starts the daemon. Paths of sockets are short, so it is not below t.TempDir.
func (e *edgeSite) serveWorkload(t testing.TB) {
	var err error
	e.daemon, err = workload.New(e.hub, &workload.Options{Device: edgeID, GatewayHostName: gatewayName})
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "edge-")
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.daemon.Close())
		_ = os.RemoveAll(dir)
	})
	_, err = e.daemon.Listen("unix", filepath.Join(dir, "workload.sock"))
	require.NoError(t, err)
}

// goModule is one of our modules.
type goModule struct {
	name    string
	client  *device.Client
	invoker *edge.Invoker

	gate     sync.Mutex          // held by a test, it stops the handler of messages
	mu       sync.Mutex          // guards the fields below
	messages []transport.Message // by the input of-node
	calls    []string            // payloads of the method "echo"
	desired  []string            // changes of the twin
}

// openOurs opens module i of goTransports, which finds its settings in its environment.
func (e *edgeSite) openOurs(t testing.TB, i int, web bool) *goModule {
	way := goTransports[i]
	_, err := e.hub.AddModule(edgeID, way.name)
	require.NoError(t, err)
	m, err := edge.FromEnvironment(&edge.Options{
		LookupEnv: workload.LookupEnv(e.daemon.Environment(edgeID, way.name)),
	})
	require.NoError(t, err)
	g := &goModule{name: way.name}
	network := m.Network
	network.Addr = e.addrs[testbroker.PortHTTPS]
	g.invoker, err = edge.NewInvoker(m.Credentials, &edge.InvokerOptions{Network: network, RetryPolicy: fastPolicy{}})
	require.NoError(t, err)
	if web {
		network.Tunnel = way.web()
	} else {
		network.Addr = e.addrs[way.port]
	}
	g.client, err = device.New(m.Credentials, way.over(m.Credentials, network), &device.Options{RetryPolicy: fastPolicy{},
		PacedPolicy: fastPolicy{}})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.invoker.Close())
		require.NoError(t, g.client.Close())
	})
	g.client.HandleInput("of-node", g.take)
	require.NoError(t, g.client.HandleMethod("echo", g.echo))
	g.client.HandleDesired(g.change)
	require.NoError(t, g.client.Open(soon(t)))
	return g
}

// take keeps a deep copy of a message.
func (g *goModule) take(_ context.Context, m *transport.Message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	var own transport.Message
	if err := json.Unmarshal(text, &own); err != nil {
		return err
	}
	g.gate.Lock()
	defer g.gate.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.messages = append(g.messages, own)
	return nil
}

func (g *goModule) echo(_ context.Context, m *device.MethodCall) (int, []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, string(m.Body))
	return 202, fmt.Appendf(nil, `{"module":%q,"given":%s}`, g.name, m.Body)
}

func (g *goModule) change(_ context.Context, d device.Desired) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.desired = append(g.desired, string(d.JSON))
}

// hears waits for a change of desired properties.
func (g *goModule) hears(t testing.TB, change string) {
	t.Helper()
	eventually(t, g.name+" hears "+change, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return slices.ContainsFunc(g.desired, func(d string) bool { return sameJSON(d, change) })
	})
}

// withPrefix returns the messages whose ids have a prefix, in the order of arrival.
func (g *goModule) withPrefix(prefix string) (all []transport.Message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.messages {
		if strings.HasPrefix(g.messages[i].ID, prefix) {
			all = append(all, g.messages[i])
		}
	}
	return all
}

// waitFor waits until the n messages with a prefix have arrived, and returns them.
func (g *goModule) waitFor(t testing.TB, prefix string, n int) (all []transport.Message) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s has %d messages %q", g.name, n, prefix), func() bool {
		all = g.withPrefix(prefix)
		distinct := map[string]bool{}
		for i := range all {
			distinct[all[i].ID] = true
		}
		return len(distinct) == n
	})
	return all
}

// settled waits until every message that was routed to the modules is completed.
func (e *edgeSite) settled() {
	e.t.Helper()
	eventually(e.t, "all messages to inputs are completed", func() bool {
		for _, r := range e.hub.InputLog("") {
			if r.State != hubdata.C2DCompleted {
				return false
			}
		}
		return true
	})
}
