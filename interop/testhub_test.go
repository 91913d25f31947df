package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testhub is a running cmd/testhub. The exported fields are those of its first line.
type testhub struct {
	testhubPorts
	Control, CA string
	Devices     []struct{ Device, ConnectionString string }
	Modules     []struct {
		Module      string
		Environment []string
	}
	Events  struct{ ConnectionString string }
	Storage struct{ ConnectionString, Container string }
	Hubs    []testhubPorts // besides the first
	DPS     struct {
		testhubPorts
		IDScope  string
		Enrolled []struct{ ID, Key string }
	}

	cmd  *exec.Cmd
	read chan struct{}  // closed at the end of the output; the fields below may be read after that
	told map[string]int // lines by event
	last string         // event
}

type testhubPorts struct {
	Host  string
	Ports map[string]int
}

// forward returns the redirection of the service's ports of the host.
func (p testhubPorts) forward() [][]any {
	return [][]any{{8883, p.Ports["mqtt"], p.Host}, {5671, p.Ports["amqp"], p.Host}, {443, p.Ports["https"], p.Host}}
}

// startTesthub builds the program and starts it with the given flags, on free ports.
func startTesthub(t testing.TB, flags ...string) *testhub {
	if _, err := exec.LookPath("go"); err != nil {
		missing(t, "go")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "testhub")
	build := exec.CommandContext(soon(t), "go", "build", "-o", program, "./cmd/testhub")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	args := append([]string{"-json", "-free", "-ca", filepath.Join(dir, "ca.pem")}, flags...)
	h := &testhub{cmd: exec.Command(program, args...), read: make(chan struct{}), told: map[string]int{}}
	h.cmd.Stderr = os.Stderr
	lines, err := h.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, h.cmd.Start())
	t.Cleanup(h.end)
	first := make(chan []byte, 1)
	go h.listen(lines, first) // ends with the program
	select {
	case line := <-first:
		require.NoError(t, json.Unmarshal(line, h), "%s", line)
	case <-h.read:
		t.Fatal("testhub ends at once")
	case <-time.After(waitLimit):
		t.Fatal("testhub does not say that it is ready")
	}
	return h
}

// end ends the program, first with SIGTERM, and reads the rest of its output.
func (h *testhub) end() {
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	limit := time.AfterFunc(15*time.Second, func() { _ = h.cmd.Process.Kill() })
	<-h.read
	_ = h.cmd.Wait()
	limit.Stop()
}

func (h *testhub) listen(out io.Reader, first chan<- []byte) {
	defer close(h.read)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e struct{ Event string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			e.Event = "garbage"
		}
		if len(h.told) == 0 {
			first <- []byte(lines.Text())
		}
		h.told[e.Event]++
		h.last = e.Event
	}
}

// ask sends a request to the control API and returns its answer.
func (h *testhub) ask(t testing.TB, method, path, body string) object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, h.Control+path, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	var o object
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&o))
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s %s: %v", method, path, o)
	return o
}

// hubClient is a device with the official device SDK, connected to testhub.
type hubClient struct {
	*script
	hub *testhub
	id  string // also the name of its client, and of its transport
}

// do sends a command to the script and waits for the event then, which must not be an error.
func (c *hubClient) do(what, then string, more object) event {
	c.t.Helper()
	command := map[string]any{"do": what, "name": c.id}
	for k, v := range more {
		command[k] = v
	}
	c.tell(command)
	e := c.next(then, c.id)
	require.Empty(c.t, e.Text, what)
	return e
}

func (c *hubClient) ask(method, path, body string) object {
	c.t.Helper()
	return c.hub.ask(c.t, method, "/devices/"+c.id+path, body)
}

// telemetry sends n messages and finds them in the list of the control API. It returns the
// connection of the last one.
func (c *hubClient) telemetry(prefix string, n int) any {
	c.t.Helper()
	var messages []object
	var want []string
	for i := range n {
		id := fmt.Sprint(prefix, i)
		messages, want = append(messages, object{"id": id, "payload": "body of " + id, "component": "thermostat1",
			"properties": object{"unit": "100 %"}}), append(want, id)
	}
	c.tell(map[string]any{"do": "send", "name": c.id, "messages": messages})
	for range n {
		require.Empty(c.t, c.next("sent", c.id).Text)
	}
	var got []string
	var connection any
	for _, v := range c.hub.ask(c.t, "GET", "/messages?device="+c.id, "")["messages"].([]any) {
		m := object(v.(map[string]any))
		id := fmt.Sprint(m["messageId"])
		if !strings.HasPrefix(id, prefix) {
			continue
		}
		require.Equal(c.t, c.id, m["device"])
		require.Equal(c.t, "body of "+id, m["body"])
		require.Equal(c.t, "100 %", m.at("properties", "unit"))
		require.Equal(c.t, "thermostat1", m["component"])
		require.Equal(c.t, strings.ToUpper(c.id), m["protocol"])
		got, connection = append(got, id), m["connection"]
	}
	require.ElementsMatch(c.t, want, got)
	return connection
}

// command sends a cloud-to-device message, which the SDK completes.
func (c *hubClient) command(body string) {
	c.t.Helper()
	c.tell(map[string]any{"do": "listen", "name": c.id})
	c.ask("POST", "/c2d", fmt.Sprintf(`{"messageId":"c-1","ack":"full","body":%q}`, body))
	e := c.next("message", c.id)
	require.Equal(c.t, body, e.Payload)
	c.do("settle", "settled", object{"delivery": e.Delivery, "outcome": "complete"})
	all := c.ask("GET", "/c2d/wait?state=completed&within=30s", "")["c2d"].([]any)
	require.Len(c.t, all, 1)
	require.Equal(c.t, "c-1", object(all[0].(map[string]any))["messageId"])
	require.Equal(c.t, "Success", object(all[0].(map[string]any))["feedback"])
}

// twin reads the twin and changes both its halves.
func (c *hubClient) twin() {
	c.t.Helper()
	c.ask("PATCH", "/twin/desired", `{"interval":60}`)
	require.JSONEq(c.t, `{"desired":{"interval":60,"$version":2},"reported":{"$version":1}}`,
		c.do("twin", "twin", nil).Payload)
	c.tell(map[string]any{"do": "watch", "name": c.id})
	// this request follows the subscription on the same connection, so the hub has processed that
	c.do("twin", "twin", nil)
	c.ask("PATCH", "/twin/desired", `{"interval":null,"size":"größe"}`)
	c.wait("change", func(e event) bool {
		return e.is("desired", c.id) && sameJSON(e.Payload, `{"interval":null,"size":"größe","$version":3}`)
	})
	c.do("report", "reported", object{"patch": object{"fan": object{"on": true}}})
	twin := c.ask("POST", "/twin/wait", `{"reported":{"fan":{"on":true}},"within":"30s"}`)
	require.Equal(c.t, map[string]any{"size": "größe"}, twin["desired"])
}

// method calls a method, which the SDK runs once.
func (c *hubClient) method() {
	c.t.Helper()
	c.tell(map[string]any{"do": "method", "name": c.id, "method": "reboot", "status": 201})
	answer := c.ask("POST", "/methods",
		`{"name":"reboot","payload":{"in":5},"responseTimeout":"30s","connectTimeout":"30s"}`)
	require.Equal(c.t, object{"status": 201.0, "payload": map[string]any{"given": map[string]any{"in": 5.0}}}, answer)
	require.Len(c.t, c.ask("GET", "/methods", "")["calls"], 1)
	require.Equal(c.t, 1, c.count("called", c.id))
}

// The hub is a separate process, observed through its control API only.
func TestDeviceSDKWithTesthub(t *testing.T) {
	nodeDir(t) // before the build
	h := startTesthub(t, "-device", "mqtt", "-device", "amqp", "-device", "http")
	require.Len(t, h.Devices, 3)
	trust, err := os.ReadFile(h.CA)
	require.NoError(t, err)
	for _, dev := range h.Devices {
		way := wayOf(dev.Device)
		t.Run(way.name, func(t *testing.T) {
			c := &hubClient{startScript(t, "device.js"), h, dev.Device}
			c.tell(map[string]any{"do": "ports", "forward": [][]int{{8883, h.Ports["mqtt"]}, {5671, h.Ports["amqp"]},
				{443, h.Ports["https"]}}})
			c.next("done", "")
			c.do("open", "opened", object{"transport": way.name, "connectionString": dev.ConnectionString,
				"trust": string(trust)})
			before := c.telemetry("first-", 10)
			c.command("größe")
			what := "telemetry, a command"
			if !way.web {
				c.twin()
				c.method()
				what += ", twin and a method"
			}
			c.tell(map[string]any{"do": "resets"}) // as sdk.drop
			c.next("watching", "")
			cut := c.ask("POST", "/reset", "")["connections"]
			c.next("gone", "")
			after := c.telemetry("second-", 10)
			if !way.web {
				require.Equal(t, 1.0, cut)
				require.NotEqual(t, before, after, "the connection is a new one")
				c.ask("GET", "/wait?connections=1&within=30s", "")
			}
			require.Zero(t, c.count("unhandled", "")+c.count("uncaught", ""))
			c.do("close", "closed", nil)
			if !way.web { // HTTP connections outlive it for a while
				c.ask("GET", "/wait?connections=0&within=30s", "")
			}
			seen(t, "%s; after a reset of what was connected (%v) telemetry again: lost 0", what, cut)
		})
	}
	require.Empty(t, h.ask(t, "GET", "/conflicts", "")["conflicts"])
	stored := h.ask(t, "GET", "/messages", "")["messages"]
	h.end()
	require.True(t, h.cmd.ProcessState.Success(), h.cmd.ProcessState)
	require.Equal(t, "end", h.last)
	require.Len(t, stored, h.told["message"], "a line for each message")
	require.Zero(t, h.told["garbage"])
	seen(t, "testhub told of %d messages and %d connections, line by line, and ended in good order", h.told["message"],
		h.told["connected"])
}

// The provisioning service and both hubs are in one separate process.
func TestDeviceSDKIsMovedByTesthub(t *testing.T) {
	t.Parallel()
	nodeDir(t) // before the build
	h := startTesthub(t, "-host", hubA, "-link", hubB, "-dps-host", "dps.example.test", "-enroll", "sensor-1")
	trust, err := os.ReadFile(h.CA)
	require.NoError(t, err)
	c := &hubClient{startScript(t, "device.js", "NODE_EXTRA_CA_CERTS="+h.CA), h, "sensor-1"}
	forward := slices.Concat(h.forward(), h.Hubs[0].forward(), h.DPS.forward())
	c.tell(map[string]any{"do": "ports", "forward": forward})
	c.next("done", "")
	key := h.DPS.Enrolled[0].Key
	for i, want := range []struct{ hub, path, transport string }{{hubA, "", "mqtt"}, {hubB, "/hubs/" + hubB, "amqp"}} {
		h.ask(t, "POST", "/dps/enrollments/sensor-1/move", fmt.Sprintf(`{"hubs":[%q]}`, want.hub))
		e := c.do("register", "registered", object{"transport": want.transport, "host": h.DPS.Host, "scope": h.DPS.IDScope,
			"id": "sensor-1", "key": key})
		var state struct{ AssignedHub, DeviceID string }
		require.NoError(t, json.Unmarshal([]byte(e.Payload), &state))
		require.Equal(t, want.hub, state.AssignedHub)
		c.do("open", "opened", object{"transport": want.transport, "trust": string(trust),
			"connectionString": "HostName=" + state.AssignedHub + ";DeviceId=" + state.DeviceID + ";SharedAccessKey=" + key})
		c.do("send", "sent", object{"messages": []object{{"payload": want.hub}}})
		c.do("close", "closed", nil)
		log := h.ask(t, "GET", want.path+"/messages/wait?device=sensor-1&within=10s", "")["messages"].([]any)
		require.Equal(t, want.hub, log[0].(map[string]any)["body"])
		require.EqualValues(t, i, h.ask(t, "GET", "/dps/registrations/sensor-1/wait", "")["moves"])
	}
	seen(t, "a device registers, sends, is moved, registers again and sends to the other hub")
}
