package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	httptransport "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// waitLimit bounds waits for things that are quick on loopback, even on a busy machine.
const waitLimit = 60 * time.Second

// A program is testhub running in this process.
type program struct {
	t     testing.TB
	ready readyObject
	stop  func() int // ends the program and returns the exit status

	mu     sync.Mutex
	lines  []line // printed after ready
	change chan struct{}
}

// start runs testhub with -json on free ports until the test ends. It checks that the program ends
// well and leaves no goroutine.
func start(t testing.TB, args ...string) *program {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var stderr bytes.Buffer
	status := make(chan int, 1)
	args = append([]string{"-free", "-json", "-ca", filepath.Join(t.TempDir(), "ca.pem")}, args...)
	go func() {
		code := run(ctx, args, in, &stderr)
		in.Close()
		status <- code
	}()
	p := &program{t: t, change: make(chan struct{})}
	p.stop = sync.OnceValue(func() int {
		cancel()
		return <-status
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		require.FailNow(t, "no line", "%d: %s", <-status, stderr.String())
	}
	require.NoError(t, json.Unmarshal(lines.Bytes(), &p.ready), lines.Text())
	require.Equal(t, "ready", p.ready.Event)
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.follow(lines)
	}()
	t.Cleanup(func() {
		require.Zero(t, p.stop(), stderr.String())
		<-read
		if len(p.lines) > 0 {
			require.Equal(t, "end", p.lines[len(p.lines)-1].Event)
		}
		http.DefaultClient.CloseIdleConnections()
		// One more, because Eventually runs the condition in a goroutine.
		require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, waitLimit, 10*time.Millisecond,
			"%d goroutines before", before)
	})
	return p
}

// follow collects the lines until the end of the output.
func (p *program) follow(lines *bufio.Scanner) {
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			p.t.Errorf("%s: %v", lines.Text(), err)
		}
		p.mu.Lock()
		p.lines = append(p.lines, l)
		close(p.change)
		p.change = make(chan struct{})
		p.mu.Unlock()
	}
}

// printed waits for a line.
func (p *program) printed(ok func(line) bool) line {
	p.t.Helper()
	late := time.After(waitLimit)
	for {
		p.mu.Lock()
		for _, l := range p.lines {
			if ok(l) {
				p.mu.Unlock()
				return l
			}
		}
		change := p.change
		p.mu.Unlock()
		select {
		case <-change:
		case <-late:
			require.FailNow(p.t, "no such line", "%+v", p.lines)
		}
	}
}

func (p *program) tls() *tls.Config {
	pem, err := os.ReadFile(p.ready.CA)
	require.NoError(p.t, err)
	roots := x509.NewCertPool()
	require.True(p.t, roots.AppendCertsFromPEM(pem))
	return &tls.Config{RootCAs: roots}
}

// ask sends a request to the control API and returns the status and the answer.
func (p *program) ask(method, path, body string) (int, map[string]any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.ready.Control+path, strings.NewReader(body))
	require.NoError(p.t, err)
	return p.send(req)
}

// send sends a request and returns the status and the answer.
func (p *program) send(req *http.Request) (int, map[string]any) {
	p.t.Helper()
	r, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer r.Body.Close()
	require.Equal(p.t, "application/json", r.Header.Get("Content-Type"))
	raw, err := io.ReadAll(r.Body)
	require.NoError(p.t, err)
	var answer map[string]any
	require.NoError(p.t, json.Unmarshal(raw, &answer), string(raw))
	return r.StatusCode, answer
}

// good is ask for a request that must succeed.
func (p *program) good(method, path, body string) map[string]any {
	p.t.Helper()
	status, answer := p.ask(method, path, body)
	require.Equal(p.t, 200, status, answer)
	return answer
}

// refused is ask for a request that must be refused. It returns the error.
func (p *program) refused(want int, method, path, body string) refusal {
	p.t.Helper()
	status, answer := p.ask(method, path, body)
	require.Equal(p.t, want, status, answer)
	raw, err := json.Marshal(answer["error"])
	require.NoError(p.t, err)
	var r refusal
	require.NoError(p.t, json.Unmarshal(raw, &r))
	require.NotEmpty(p.t, r.Problem)
	require.NotEmpty(p.t, r.Fix)
	return r
}

// transports are Hubline's transports for the program's addresses.
var transports = map[string]func(p *program) transport.Transport{
	"mqtt": func(p *program) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: netopt.Options{Addr: p.ready.Addresses["mqtt"], TLS: p.tls()}})
	},
	"amqp": func(p *program) transport.Transport {
		return amqp.New(&amqp.Options{Network: netopt.Options{Addr: p.ready.Addresses["amqp"], TLS: p.tls()}})
	},
	"https": func(p *program) transport.Transport {
		return httptransport.New(&httptransport.Options{Network: netopt.Options{Addr: p.ready.Addresses["https"],
			TLS: p.tls()},
			PollInterval: 10 * time.Millisecond})
	},
}

// quick makes a client reconnect at once: these tests are not about its delays.
func quick() *device.Options {
	return &device.Options{RetryPolicy: retrypolicy.Fixed{Delay: 20 * time.Millisecond}, ReconnectSpread: -1}
}

// client makes a client of a device that the program has printed, a quick one without options.
func (p *program) client(id, over string, o *device.Options) *device.Client {
	p.t.Helper()
	if o == nil {
		o = quick()
	}
	c, err := device.New(p.creds(id), transports[over](p), o)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { require.NoError(p.t, c.Close()) })
	return c
}

// creds returns the credentials of a device that the program has printed.
func (p *program) creds(id string) *transport.Credentials {
	p.t.Helper()
	i := slices.IndexFunc(p.ready.Devices, func(d readyDevice) bool { return d.Device == id })
	require.GreaterOrEqual(p.t, i, 0, "no device %s", id)
	creds, err := device.ParseConnectionString(p.ready.Devices[i].ConnectionString)
	require.NoError(p.t, err)
	return creds
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// A device over each transport: its telemetry is listed, C2D messages arrive and are settled, it
// survives the API's actions, and the program prints all events.
func TestADeviceOverEachTransport(t *testing.T) {
	for over := range transports {
		t.Run(over, func(t *testing.T) {
			p := start(t)
			ctx := soon(t)
			got := make(chan string, 10)
			c := p.client("dev-1", over, nil)
			c.HandleMessages(func(_ context.Context, m *transport.Message) error {
				got <- string(m.Body)
				return nil
			})
			require.NoError(t, c.Open(ctx))
			require.NoError(t, c.Send(ctx, &transport.Message{ID: "1", Component: "thermostat1", Body: []byte("one"),
				Properties: []transport.Property{{Name: "unit", Value: "c d"}}}))

			log := p.good("GET", "/messages/wait?within=30s", "")
			m := log["messages"].([]any)[0].(map[string]any)
			require.Equal(t, "dev-1", m["device"])
			require.Equal(t, "1", m["messageId"])
			require.Equal(t, "thermostat1", m["component"])
			require.Equal(t, map[string]any{"$.mid": "1", "$.sub": "thermostat1"}, m["system"])
			require.Equal(t, "one", m["body"])
			require.Equal(t, "c d", m["properties"].(map[string]any)["unit"])
			require.EqualValues(t, 1, log["next"])
			l := p.printed(func(l line) bool { return l.Event == "message" })
			require.Equal(t, line{Event: "message", Time: l.Time, Connection: l.Connection, Device: "dev-1",
				Protocol: l.Protocol, MessageID: "1", Bytes: 3}, l)

			p.good("POST", "/devices/dev-1/c2d", `{"messageId":"c","body":"reboot","ack":"full"}`)
			all := p.good("GET", "/devices/dev-1/c2d/wait?state=completed", "")["c2d"].([]any)
			require.Equal(t, "reboot", <-got)
			require.Equal(t, "Success", all[0].(map[string]any)["feedback"])

			lost := p.good("POST", "/faults", `{"kind":"DropAfterPublish","device":"dev-1"}`)
			require.NoError(t, c.Send(ctx, &transport.Message{ID: "2", Body: []byte("two")}))
			fired := p.good("GET", "/faults/1/wait", "")
			require.EqualValues(t, 1, fired["fired"])
			require.EqualValues(t, 1, lost["id"])
			twice := p.good("GET", "/messages/wait?count=2&from=1", "")["messages"].([]any)
			require.Equal(t, []any{"2", "2"}, []any{twice[0].(map[string]any)["messageId"],
				twice[1].(map[string]any)["messageId"]},
				"its sender could not know")
			require.Empty(t, p.good("GET", "/conflicts", "")["conflicts"])
			p.printed(func(l line) bool { return l.Event == "fault" && l.Fault == "DropAfterPublish" })

			for n, end := range []string{"reset", "close"} {
				p.good("GET", "/devices/dev-1/wait", "")
				require.NotZero(t, p.good("POST", "/devices/dev-1/"+end, "")["connections"])
				require.NoError(t, c.Send(ctx, &transport.Message{ID: end}), n)
			}
			p.printed(func(l line) bool {
				return l.Event == "disconnected" && l.Device == "dev-1" && strings.Contains(l.Error, "dropped")
			})

			p.good("POST", "/reset", "")
			require.NoError(t, c.Send(ctx, &transport.Message{ID: "after"}))
			log = p.good("GET", "/messages?device=dev-1", "")
			require.Len(t, log["messages"], 1)
			require.Empty(t, p.good("GET", "/faults", "")["faults"])
			require.Empty(t, p.good("GET", "/devices/dev-1/c2d", "")["c2d"])
			p.printed(func(l line) bool { return l.Event == "message" && l.MessageID == "after" })
		})
	}
}

// Twins and methods, over MQTT.
func TestTwinsAndMethods(t *testing.T) {
	p := start(t, "-device", "dev-1", "-device", "away")
	ctx := soon(t)
	c := p.client("dev-1", "mqtt", nil)
	desired := make(chan string, 10)
	c.HandleDesired(func(_ context.Context, d device.Desired) {
		desired <- string(d.JSON)
	})
	require.NoError(t, c.HandleMethod("add", func(_ context.Context, m *device.MethodCall) (int, []byte) {
		return 200, append(append([]byte(`{"was":`), m.Body...), '}')
	}))
	require.NoError(t, c.Open(ctx))
	require.JSONEq(t, `{"$version":1}`, <-desired)
	require.EqualValues(t, 2, p.good("PATCH", "/devices/dev-1/twin/desired", `{"interval":60}`)["desiredVersion"])
	require.JSONEq(t, `{"$version":2,"interval":60}`, <-desired)
	require.Equal(t, map[string]any{"mode": "eco"}, p.good("PUT", "/devices/dev-1/twin/desired",
		`{"mode":"eco"}`)["desired"])
	require.Contains(t, <-desired, `"mode":"eco"`)
	_, err := c.PatchReported(ctx, []byte(`{"fan":{"on":true,"speed":3}}`))
	require.NoError(t, err)
	twin := p.good("POST", "/devices/dev-1/twin/wait", `{"reported":{"fan":{"on":true},"gone":null}}`)
	require.Equal(t, map[string]any{"fan": map[string]any{"on": true, "speed": 3.0}}, twin["reported"])
	late := p.refused(504, "POST", "/devices/dev-1/twin/wait", `{"reported":{"fan":{"on":false}},"within":"50ms"}`)
	require.Contains(t, late.Problem, `"speed":3`)
	p.good("PATCH", "/devices/dev-1/twin/tags", `{"site":"roof"}`)
	p.good("POST", "/devices/dev-1/twin/wait", `{"desired":{"mode":"eco","interval":null},"tags":{"site":"roof"}}`)
	p.refused(504, "POST", "/devices/dev-1/twin/wait",
		`{"reported":{"fan":{"on":true}},"desired":{"mode":"off"},"within":"50ms"}`)
	p.refused(504, "POST", "/devices/dev-1/twin/wait",
		`{"reported":{"fan":{"on":true}},"tags":{"site":"cellar"},"within":"50ms"}`)

	answer := p.good("POST", "/devices/dev-1/methods", `{"name":"add","payload":[1,2],"responseTimeout":"20s"}`)
	require.Equal(t, map[string]any{"status": 200.0, "payload": map[string]any{"was": []any{1.0, 2.0}}}, answer)
	require.Len(t, p.good("GET", "/devices/dev-1/methods", "")["calls"], 1)

	require.Equal(t, 404103, p.refused(404, "POST", "/devices/away/methods", `{"name":"add"}`).Code)
}

// Each event is one line with all its fields.
func TestALineForEachEvent(t *testing.T) {
	p := start(t)
	ctx := soon(t)
	c := p.client("dev-1", "mqtt", nil)
	c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
	require.NoError(t, c.HandleMethod("reboot",
		func(context.Context, *device.MethodCall) (int, []byte) { return 202, nil }))
	require.NoError(t, c.Open(ctx))
	_, err := c.PatchReported(ctx, []byte(`{"fan":true}`))
	require.NoError(t, err)
	p.good("PATCH", "/devices/dev-1/twin/desired", `{"interval":60}`)
	p.good("POST", "/devices/dev-1/methods", `{"name":"reboot"}`)
	p.good("POST", "/devices/dev-1/c2d", `{"messageId":"c-1"}`)
	p.good("GET", "/devices/dev-1/c2d/wait?state=completed", "")
	u, err := fileupload.New(p.creds("dev-1"),
		&fileupload.Options{Network: netopt.Options{Addr: p.ready.Addresses["https"], TLS: p.tls()}})
	require.NoError(t, err)
	_, err = u.Upload(ctx, "today.txt", strings.NewReader("sunny"), -1)
	require.NoError(t, err)
	require.NoError(t, u.Close())
	p.good("POST", "/faults", `{"kind":"Quota"}`)
	p.good("DELETE", "/faults/1", "")
	p.good("POST", "/reset", "")
	for _, want := range []line{
		{Event: "twin-requested", Device: "dev-1", Detail: "patch", Status: 204, Version: 2, Protocol: "MQTT"},
		{Event: "twin-changed", Device: "dev-1", Detail: "desired", Version: 2},
		{Event: "method-called", Device: "dev-1", Method: "reboot"},
		{Event: "method-answered", Device: "dev-1", Method: "reboot", Status: 202, Detail: "taken", Protocol: "MQTT"},
		{Event: "c2d", Device: "dev-1", MessageID: "c-1", Detail: "enqueued"},
		{Event: "c2d", Device: "dev-1", MessageID: "c-1", Detail: "invisible"},
		{Event: "c2d", Device: "dev-1", MessageID: "c-1", Detail: "completed"},
		{Event: "upload", Device: "dev-1", File: "dev-1/today.txt", Detail: "running"},
		{Event: "upload", Device: "dev-1", File: "dev-1/today.txt", Detail: "succeeded"},
		{Event: "fault-declared", Fault: "Quota"},
		{Event: "fault-removed", Fault: "Quota"},
		{Event: "disconnected", Device: "dev-1", Error: "cut by a reset of the hub"},
		{Event: "reset"},
	} {
		p.printed(func(l line) bool {
			l.Time, l.Connection = time.Time{}, 0
			return l == want
		})
	}
}

// The table in README.md has every kind of event.
func TestREADMEHasAllEvents(t *testing.T) {
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.NotEmpty(t, constants(t, "event.Kind"))
	for k := range constants(t, "event.Kind") {
		require.Contains(t, string(raw), "`"+event.Kind(k+1).String()+"`")
	}
}
