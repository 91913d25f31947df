package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

const toStore = `FROM /messages/modules/filter/outputs/* INTO BrokeredEndpoint("/modules/store/inputs/readings")`

// behind are flags of a gateway with two modules.
var behind = []string{"-gateway", "localhost", "-module", "edge-1/filter", "-module", "edge-1/store", "-route", toStore,
	"-route", "FROM /messages/* INTO $upstream"}

// A module sends to an output, another one gets it at its input, while the gateway is off-line. Its
// telemetry waits in the gateway.
func TestModulesBehindAGateway(t *testing.T) {
	p := start(t, append([]string{"-device", "leaf"}, behind...)...)
	require.Equal(t, "localhost", p.ready.Gateway)
	ctx := soon(t)
	store := p.client("edge-1/store", "mqtt", nil)
	got := make(chan string, 10)
	store.HandleInput("readings", func(_ context.Context, m *transport.Message) error {
		got <- m.Input + ": " + string(m.Body)
		return nil
	})
	require.NoError(t, store.Open(ctx))
	filter := p.client("edge-1/filter", "mqtt", nil)
	require.NoError(t, filter.Open(ctx))

	state := p.good("POST", "/gateway/offline", "")
	require.Equal(t, map[string]any{"gateway": "localhost", "stopped": false, "offline": true, "stored": 0.0}, state)
	require.NoError(t, filter.Send(ctx, &transport.Message{Output: "hot", Body: []byte("90")}))
	require.Equal(t, "readings: 90", <-got)
	inputs := p.good("GET", "/devices/edge-1%2Fstore/inputs/wait", "")["inputs"].([]any)
	require.Len(t, inputs, 1)
	require.Equal(t, "readings", inputs[0].(map[string]any)["input"])
	require.Equal(t, "completed", inputs[0].(map[string]any)["state"])

	require.EqualValues(t, 1, p.good("GET", "/gateway/wait?stored=1", "")["stored"], "each goes to the hub as well")
	require.Empty(t, p.good("GET", "/messages", "")["messages"])
	p.refused(504, "GET", "/gateway/wait?within=10ms", "")
	p.good("POST", "/gateway/online", "")
	require.EqualValues(t, 0, p.good("GET", "/gateway/wait", "")["stored"])
	require.Len(t, p.good("GET", "/messages/wait", "")["messages"], 1)

	p.good("POST", "/devices/edge-1%2Fstore/inputs/readings", `{"body":"from the test"}`)
	require.Equal(t, "readings: from the test", <-got)

	require.Equal(t, true, p.good("POST", "/gateway/stop", "")["stopped"])
	p.good("GET", "/devices/edge-1%2Ffilter/wait?connections=0", "")
	require.Equal(t, false, p.good("POST", "/gateway/start", "")["stopped"])
	require.NoError(t, filter.Send(ctx, &transport.Message{ID: "after"}))
}

// The environment that is printed leads to the workload API, which signs.
func TestTheEnvironmentOfAModule(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "w.sock")
	p := start(t, append([]string{"-workload", "unix://" + socket}, behind...)...)
	require.Equal(t, "unix://"+socket, p.ready.Workload)
	require.Len(t, p.ready.Modules, 2)
	require.Equal(t, "edge-1/filter", p.ready.Modules[0].Module)
	lookup := workload.LookupEnv(p.ready.Modules[0].Environment)
	env := func(name string) string {
		v, ok := lookup("IOTEDGE_" + name)
		require.True(t, ok, name)
		return v
	}
	require.Equal(t, "localhost", env("GATEWAYHOSTNAME"))
	require.Equal(t, "filter", env("MODULEID"))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(env("WORKLOADURI"), "unix://"))
		}}}
	sign := func() (int, string, error) {
		url := fmt.Sprintf("http://workload/modules/%s/genid/%s/sign?api-version=%s", env("MODULEID"),
			env("MODULEGENERATIONID"), env("APIVERSION"))
		r, err := http.NewRequestWithContext(soon(t), "POST", url, strings.NewReader(`{"data":"eA=="}`))
		require.NoError(t, err)
		answer, err := client.Do(r)
		if err != nil {
			return 0, "", err
		}
		defer answer.Body.Close()
		var body struct{ Digest string }
		return answer.StatusCode, body.Digest, json.NewDecoder(answer.Body).Decode(&body)
	}
	good := func() {
		t.Helper()
		status, digest, err := sign()
		require.NoError(t, err)
		require.Equal(t, 200, status)
		raw, err := base64.StdEncoding.DecodeString(digest)
		require.NoError(t, err)
		require.Len(t, raw, 32)
	}
	good()
	p.good("POST", "/workload/faults", `{"kind":"AnswerStatus","call":"Sign","module":"edge-1/filter","status":503}`)
	status, _, err := sign()
	require.NoError(t, err)
	require.Equal(t, 503, status)
	require.EqualValues(t, 1, p.good("GET", "/faults/1/wait", "")["fired"])
	require.EqualValues(t, 2, p.good("GET", "/workload/wait?call=Sign&count=2", "")["calls"].(map[string]any)["Sign"])
	good()

	require.Equal(t, true, p.good("POST", "/workload/stop", "")["stopped"])
	require.NoFileExists(t, socket)
	_, _, err = sign()
	require.Error(t, err)
	require.NoError(t, os.WriteFile(socket, nil, 0o600))
	require.Contains(t, p.refused(409, "POST", "/workload/start", "").Fix, "socket")
	require.NoError(t, os.Remove(socket))
	require.Equal(t, false, p.good("POST", "/workload/start", "")["stopped"])
	good()

	p.good("POST", "/workload/faults", `{"kind":"Absent"}`)
	p.good("POST", "/workload/stop", "")
	p.good("POST", "/reset", "")
	require.Empty(t, p.good("GET", "/faults", "")["faults"])
	good()
}

// A rotation writes the file of -ca again. Clients that trust only the old one cannot connect.
func TestRotation(t *testing.T) {
	for _, args := range [][]string{nil, behind, desk} {
		p := start(t, append([]string{"-device", "dev-1"}, args...)...)
		ctx := soon(t)
		old, err := os.ReadFile(p.ready.CA)
		require.NoError(t, err)
		before := p.tls()
		c := p.client("dev-1", "mqtt", nil)
		require.NoError(t, c.Open(ctx))
		require.EqualValues(t, 0, p.good("POST", "/certificate/rotate", "")["connections"])
		require.NoError(t, c.Send(ctx, &transport.Message{}), "open connections stay")
		fresh, err := os.ReadFile(p.ready.CA)
		require.NoError(t, err)
		require.NotEqual(t, old, fresh)
		require.Equal(t, bytes.Count(old, []byte("BEGIN")), bytes.Count(fresh, []byte("BEGIN")))

		require.EqualValues(t, 1, p.good("POST", "/certificate/rotate", `{"cut":true}`)["connections"])
		require.NoError(t, c.Close())
		require.NoError(t, p.client("dev-1", "amqp", nil).Open(ctx))
		_, err = (&http.Client{Transport: &http.Transport{TLSClientConfig: before}}).Get("https://" +
			p.ready.Addresses["https"])
		require.ErrorContains(t, err, "unknown authority")
	}
}

func TestAControlAPIWithoutAGateway(t *testing.T) {
	p := start(t, "-device", "dev-1", "-device", "dev-1/cam")
	require.Empty(t, p.ready.Gateway+p.ready.Workload)
	require.Empty(t, p.ready.Modules)
	for _, r := range routes() {
		switch first, _, _ := strings.Cut(r.path[1:], "/"); first {
		case "gateway", "workload":
			require.Contains(t, p.refused(404, r.method, r.path, "").Fix, "-"+first)
		}
	}
	for _, c := range []struct{ method, path, body, field string }{
		{"POST", "/devices/dev-1/inputs/a", "{}", "device"},
		{"GET", "/devices/dev-1/inputs", "", "device"},
		{"GET", "/devices/dev-1/inputs/wait", "", "device"},
		{"POST", "/devices/dev-1%2Fcam/inputs/a%20b", "{}", "input"},
		{"POST", "/devices/dev-1%2Fcam/inputs/a", `{"ack":"full"}`, "ack"},
		{"POST", "/devices/dev-1%2Fcam/inputs/a", `{"body":"a","bodyBase64":"YQ=="}`, "bodyBase64"},
		{"GET", "/devices/dev-1%2Fcam/inputs/wait?state=gone", "", "state"},
		{"POST", "/certificate/rotate", `{"hard":true}`, "hard"},
	} {
		require.Equal(t, c.field, p.refused(400, c.method, c.path, c.body).Field, c.path+c.body)
	}
}

func TestInputAboutTheWorkloadAPI(t *testing.T) {
	p := start(t, "-module", "edge-1/filter")
	for body, want := range map[string]string{
		``: "body", `{}`: "kind", `{"kind":"Nothing"}`: "kind", `[]`: "body",
		`{"kind":"Slow","status":500}`:                          "status",
		`{"kind":"Absent","times":2}`:                           "times",
		`{"kind":"AnswerStatus","status":199}`:                  "status",
		`{"kind":"Slow","delay":"-1s"}`:                         "delay",
		`{"kind":"Slow","call":"Dance"}`:                        "call",
		`{"kind":"WrongDigest","call":"TrustBundle"}`:           "call",
		`{"kind":"Slow","module":"edge-1/none"}`:                "module",
		`{"kind":"Slow","times":0}`:                             "times",
		`{"kind":"Slow","probability":2}`:                       "probability",
		`{"kind":"Oversized","size":0}`:                         "size",
		`{"kind":"Garbage","bytesBase64":"?"}`:                  "bytesBase64",
		`{"kind":"Slow","device":"edge-1"}`:                     "device",
		`{"kind":"StaleBundle","call":"Sign","for":"1m"}`:       "call",
		`{"kind":"AnswerStatus","status":500,"for":"sometime"}`: "for",
	} {
		require.Equal(t, want, p.refused(400, "POST", "/workload/faults", body).Field, body)
	}
	require.Contains(t, p.refused(400, "POST", "/workload/faults", `{"kind":"?"}`).Fix, "GET /faults/kinds")
	require.Equal(t, "call", p.refused(400, "GET", "/workload/wait?call=none", "").Field)
	p.refused(400, "GET", "/workload?x=1", "")
	for _, k := range workload.FaultKinds() {
		p.good("POST", "/workload/faults", `{"kind":"`+k.String()+`"}`)
	}
	require.EqualValues(t, len(workload.FaultKinds()), p.good("DELETE", "/faults", "")["removed"])
}

// What is printed for people can be copied behind export. The file of -env has the first module.
func TestLinesAboutModules(t *testing.T) {
	env := filepath.Join(t.TempDir(), "testhub.env")
	p := start(t, "-gateway", "localhost", "-module", "edge-1/it's$HOME", "-module", "edge-1/b", "-env", env)
	var b strings.Builder
	require.NoError(t, newPrinter(&b, false, nil).ready(&p.ready))
	require.Contains(t, b.String(), "\ngateway  localhost\nworkload http://127.0.0.1:")
	lines := 0
	for l := range strings.Lines(b.String()) {
		if l, ok := strings.CutPrefix(l, "module   edge-1/it's$HOME: "); ok {
			out, err := exec.Command("sh", "-c", "export "+strings.TrimSpace(l)+`; printf '%s\n' "$IOTEDGE_MODULEID"`).Output()
			require.NoError(t, err)
			require.Equal(t, "it's$HOME\n", string(out))
			lines++
		}
	}
	require.Equal(t, 1, lines)
	read := exec.Command("sh", "-c", `. "$0" && printf '%s\n' "$IOTEDGE_MODULEID" "$IOTEDGE_WORKLOADURI"`, env)
	out, err := read.Output()
	require.NoError(t, err)
	modules := p.good("GET", "/workload", "")["modules"].([]any)
	require.Len(t, modules, 2)
	first := p.ready.Modules[0]
	require.Contains(t, first.Environment, "IOTEDGE_MODULEID="+strings.Split(string(out), "\n")[0])
	require.Contains(t, first.Environment, "IOTEDGE_WORKLOADURI="+strings.Split(string(out), "\n")[1])
	require.NotContains(t, p.good("GET", "/hub", ""), "modules")
	require.Equal(t, "localhost", p.good("GET", "/hub", "")["gateway"])
}

// A module of Hubline needs only its environment: over a real socket it gets tokens and the trust
// bundle, again after a rotation, and it calls a method of another module.
func TestAModuleFromItsEnvironment(t *testing.T) {
	t.Parallel() // a module does not fetch its roots again within five seconds
	p := start(t, append([]string{"-workload", "unix://" + filepath.Join(t.TempDir(), "w.sock")}, behind...)...)
	ctx := soon(t)
	module := func(i int) *edge.Module {
		m, err := edge.FromEnvironment(&edge.Options{LookupEnv: workload.LookupEnv(p.ready.Modules[i].Environment)})
		require.NoError(t, err)
		return m
	}
	open := func(m *edge.Module) *device.Client {
		network := m.Network
		network.Addr = p.ready.Addresses["mqtt"]
		c, err := device.New(m.Credentials, mqtt.New(&mqtt.Options{Network: network}), quick())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	filter, store := module(0), open(module(1))
	require.NoError(t, store.HandleMethod("add", func(_ context.Context, m *device.MethodCall) (int, []byte) {
		return 201, m.Body
	}))
	require.NoError(t, store.Open(ctx))
	c := open(filter)
	require.NoError(t, c.Open(ctx))
	require.NoError(t, c.Send(ctx, &transport.Message{ID: "1"}))
	require.EqualValues(t, 2, p.good("POST", "/certificate/rotate", `{"cut":true}`)["connections"])
	require.NoError(t, c.Send(ctx, &transport.Message{ID: "2"}))
	calls := p.good("GET", "/workload", "")["calls"].(map[string]any)
	require.GreaterOrEqual(t, calls["TrustBundle"], 3.0)

	p.good("GET", "/devices/edge-1%2Fstore/wait", "")
	network := filter.Network
	network.Addr = p.ready.Addresses["https"]
	invoker, err := edge.NewInvoker(filter.Credentials, &edge.InvokerOptions{Network: network})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, invoker.Close()) })
	result, err := invoker.Invoke(ctx, edge.Target{DeviceID: "edge-1", ModuleID: "store"},
		edge.Method{Name: "add", Payload: []byte(`[1]`), ConnectTimeout: 10 * time.Second})
	require.NoError(t, err)
	require.Equal(t, 201, result.Status)
	require.JSONEq(t, `[1]`, string(result.Payload))
}
