package interop

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// amenzhinskyHost is an address of the loopback network for these tests alone. The client takes one
// host for HTTPS and for AMQP, so both need the service's ports.
const amenzhinskyHost = "127.77.18.1"

// An amenzhinsky is a hub, and the programs around the client of github.com/amenzhinsky/iothub.
type amenzhinsky struct {
	t        *testing.T
	hub      *testbroker.Hub
	dev      hubdata.Device
	client   string // a program that uses the client
	commands string // the command iothub-service
	env      []string
}

func startAmenzhinsky(t *testing.T) *amenzhinsky {
	a := &amenzhinsky{t: t, hub: hubfixture.Open(t, &testbroker.Options{HostName: amenzhinskyHost})}
	for port, at := range map[string]testbroker.Port{"443": testbroker.PortHTTPS, "5671": testbroker.PortAMQPS} {
		if _, err := a.hub.Listen(at, net.JoinHostPort(amenzhinskyHost, port)); err != nil {
			t.Log(err)
			missing(t, "the right to listen on port "+port)
		}
	}
	policy, err := a.hub.AddPolicy("service", hubdata.RightAll)
	require.NoError(t, err)
	a.dev, err = a.hub.AddDevice("dev-1")
	require.NoError(t, err)
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, a.hub.CAPEM(), 0o600))
	a.env = append(os.Environ(), "IOTHUB_SERVICE_CONNECTION_STRING="+policy.ConnectionString(), "HUB_CA="+ca)
	a.client, a.commands = filepath.Join(dir, "client"), filepath.Join(dir, "iothub-service")
	a.build("-o", a.client, ".")
	a.buildTrusting()
	return a
}

// build runs go build in the programs' own module.
func (a *amenzhinsky) build(args ...string) {
	out, err := a.goTool(append([]string{"build"}, args...)...)
	if err != nil && strings.Contains(string(out), "dial tcp") {
		missing(a.t, "the Go module proxy")
	}
	require.NoError(a.t, err, string(out))
}

func (a *amenzhinsky) goTool(args ...string) ([]byte, error) {
	cmd := exec.CommandContext(a.t.Context(), "go", args...)
	cmd.Dir, cmd.Env = filepath.Join("testdata", "amenzhinsky"), append(os.Environ(), "GOWORK=off")
	return cmd.CombinedOutput()
}

// buildTrusting builds the command from a copy of its module in which the hub's certificate
// replaces the list of roots, for which the command has no setting. Everything else stays as it is.
func (a *amenzhinsky) buildTrusting() {
	_, err := a.goTool("mod", "download", "github.com/amenzhinsky/iothub")
	require.NoError(a.t, err)
	out, err := a.goTool("list", "-m", "-f", "{{.Dir}}", "github.com/amenzhinsky/iothub")
	require.NoError(a.t, err, string(out))
	dir := filepath.Join(a.t.TempDir(), "iothub")
	require.NoError(a.t, os.CopyFS(dir, os.DirFS(strings.TrimSpace(string(out)))))
	file := filepath.Join(dir, "common", "tls.go")
	code, err := os.ReadFile(file)
	require.NoError(a.t, err)
	roots := regexp.MustCompile("(?s)`[^`]*-----END CERTIFICATE-----\n`")
	require.Len(a.t, roots.FindAll(code, -1), 1)
	code = roots.ReplaceAllLiteral(code, []byte("`"+string(a.hub.CAPEM())+"`"))
	require.NoError(a.t, os.Remove(file)) // it may be read-only
	require.NoError(a.t, os.WriteFile(file, code, 0o600))
	a.build("-C", dir, "-o", a.commands, "./cmd/iothub-service")
}

// run runs a program to its end, and returns its output.
func (a *amenzhinsky) run(program string, args ...string) (string, error) {
	cmd := exec.CommandContext(soon(a.t), program, args...)
	cmd.Env = a.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// watch runs a program that prints JSON objects until it prints the wanted one. Others come again
// from programs that ended before they had settled what they printed.
func (a *amenzhinsky) watch(kind fault.LinkKind, into any, wanted func() bool, program string, args ...string) {
	a.t.Helper()
	cmd := exec.CommandContext(soon(a.t), program, args...)
	cmd.Env = a.env
	out, err := cmd.StdoutPipe()
	require.NoError(a.t, err)
	require.NoError(a.t, cmd.Start())
	objects := json.NewDecoder(out)
	for err = objects.Decode(into); err == nil && !wanted(); {
		err = objects.Decode(into)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	require.NoError(a.t, err, "%s %v", program, args)
	eventually(a.t, "the link ends with the program", func() bool { return a.hub.Links("", kind) == 0 })
}

func TestAmenzhinskyMessages(t *testing.T) {
	a := startAmenzhinsky(t)
	for _, way := range []struct {
		program               string
		send, feedback, files []string
	}{
		{a.client, []string{"send", "dev-1", "hello"}, []string{"feedback"}, []string{"files"}},
		{a.commands, []string{"send", "-ack", "full", "-mid", "m-1", "-cid", "c-1", "-uid", "ann", "-prop", "unit=C", "dev-1",
			"hello"}, []string{"watch-feedback"}, []string{"watch-file-notifications"}},
	} {
		name := filepath.Base(way.program)
		out, err := a.run(way.program, way.send...)
		require.NoError(t, err, out)
		require.Equal(t, 1, a.hub.CountC2D("dev-1", hubdata.C2DEnqueued))
		log := a.hub.C2DLog("dev-1")
		got := log[len(log)-1].C2D
		require.Greater(t, time.Until(got.Expiry), 30*time.Minute)
		got.Expiry = time.Time{}
		require.Equal(t, hubdata.C2D{MessageID: "m-1", CorrelationID: "c-1", UserID: "ann", Ack: "full",
			Properties: []hubdata.Property{{Name: "unit", Value: "C"}}, Body: []byte("hello")}, got)
		seen(t, "%s: a C2D message with every property", name)

		out, err = a.run(way.program, append(way.send[:len(way.send)-2:len(way.send)-2], "nobody", "x")...)
		require.Error(t, err)
		require.Contains(t, out, "amqp:not-found")
		seen(t, "%s: an unknown device: %s", name, strings.TrimSpace(out))

		require.Equal(t, 1, a.hub.PurgeC2D("dev-1"))
		var f feedbackRecord
		a.watch(fault.LinkFeedback, &f, func() bool { return true }, way.program, way.feedback...)
		require.Equal(t, feedbackRecord{"m-1", "Purged", "Purged", "dev-1", a.dev.GenerationID, f.EnqueuedTimeUTC}, f)
		seen(t, "%s: feedback", name)

		uploadFile(t, a.hub, a.dev, name+".txt", "content")
		var n struct {
			BlobName        string
			BlobSizeInBytes int
		}
		uploaded := func() bool { return n.BlobName == "dev-1/"+name+".txt" }
		a.watch(fault.LinkFileNotification, &n, uploaded, way.program, way.files...)
		require.Equal(t, 7, n.BlobSizeInBytes)
		seen(t, "%s: a file notification", name)
	}
}

// The command's calls over HTTPS, in order: some use what others have made.
func TestAmenzhinskyCommands(t *testing.T) {
	a := startAmenzhinsky(t)
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	for _, c := range []struct{ args, want string }{
		{"create-device dev-2", `"deviceId": "dev-2"`},
		{"create-device -edge edge-1", `"iotEdge": true`},
		{"device dev-2", `"status": "enabled"`},
		{"devices", `"deviceId": "edge-1"`},

		{"update-device -capability iotEdge=false -status disabled -force dev-2", `"status": "disabled"`},
		{"create-module dev-2 mod-1", `"moduleId": "mod-1"`},
		{"module dev-2 mod-1", `"moduleId": "mod-1"`},
		{"modules dev-2", `"moduleId": "mod-1"`},
		{"update-module -force -sas-primary " + key + " -sas-secondary-key " + key + " dev-2 mod-1",
			`"primaryKey": "` + key + `"`},
		{"twin dev-1", `"deviceId": "dev-1"`},
		{"update-twin -prop rate=60 -tag site=\"Ulm\" dev-1", `"rate": 60`},
		{"module-twin dev-2 mod-1", `"moduleId": "mod-1"`},
		{"update-module-twin -force -prop rate=30 dev-2 mod-1", `"rate": 30`},
		{"device-statistics", `"totalDeviceCount": 3`},
		{"service-statistics", `"connectedDeviceCount": 0`},
		{"device-connection-string dev-1", a.dev.ConnectionString()},
		{"delete-module -force dev-2 mod-1", ""},
		{"delete-device -force dev-2", ""},
	} {
		out, err := a.run(a.commands, strings.Fields(c.args)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v: %s", c.args, err, out)
			continue
		}
		seen(t, "%s", c.args)
	}
	out, err := a.run(a.commands, "query", "SELECT * FROM devices WHERE tags.site = 'Ulm'")
	require.NoError(t, err, out)
	require.Contains(t, out, `"deviceId": "dev-1"`)
	out, err = a.run(a.commands, "device", "dev-2")
	require.Error(t, err)
	require.Contains(t, out, "404")
	seen(t, "query; an unknown device: %s", strings.TrimSpace(out))
}

// The commands about methods, configurations, jobs and files with devices, in order. Two others of
// this version fail: cancel-job takes no argument, and update-digital-twin takes the status 202 for
// an error.
func TestAmenzhinskyCommandsForManyDevices(t *testing.T) {
	a := startAmenzhinsky(t)
	a.answersMethods()
	container, err := a.hub.ContainerURL(amenzhinskyHost, "jobs", time.Hour)
	require.NoError(t, err)
	rate := []string{"-device-prop", "properties.desired.rate=5"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"call", "dev-1", "reboot", `{"in":5}`}, `"in": 5`},
		{[]string{"digital-twin", "dev-1"}, `"$dtId": "dev-1"`},
		{[]string{"call-digital-twin", "dev-1", "reboot", `{"in":6}`}, `"in": 6`},
		{[]string{"call-digital-twin-component", "dev-1", "fan", "reboot", `{"in":7}`}, `"in": 7`},

		{append([]string{"create-configuration"}, append(rate, "c-1")...), `"properties.desired.rate": 5`},
		{[]string{"configuration", "c-1"}, `"priority": 10`},
		{[]string{"update-configuration", "-priority", "11", "-force", "c-1"}, `"priority": 11`},
		{[]string{"configurations"}, `"id": "c-1"`},
		{append([]string{"apply-configuration"}, append(rate, "dev-1")...), ""},
		{[]string{"twin", "dev-1"}, `"rate": 5`},
		{[]string{"delete-configuration", "-force", "c-1"}, ""},
		{[]string{"create-deployment", "d-1", "filter", "image:1"}, `"id": "d-1"`},
		{[]string{"deployments"}, `"image": "image:1"`},

		{[]string{"schedule-method-call", "-job-id", "j-1", "reboot", `{}`}, `"jobId": "j-1"`},
		{[]string{"schedule-method-call", "-job-id", "j-2", "-start-time", "2099-01-01T00:00:00Z", "reboot", `{}`},
			`"status": "scheduled"`},
		{[]string{"schedule-twin-update", "-job-id", "j-3"}, `"scheduled": 1`},
		{[]string{"schedule-jobs"}, `"jobId": "j-1"`},
		{[]string{"get-schedule-job", "j-2"}, `"status": "scheduled"`},
		{[]string{"cancel-schedule-job", "j-2"}, `"status": "cancelled"`},

		{[]string{"create-module", "dev-1", "mod-1"}, `"moduleId": "mod-1"`},
		{[]string{"module-connection-string", "dev-1", "mod-1"}, ";DeviceId=dev-1;ModuleId=mod-1;"},
		{[]string{"access-signature", "dev-1"}, "SharedAccessSignature sr="},
	} {
		out, err := a.run(a.commands, c.args...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%v: %v: %s", c.args, err, out)
			continue
		}
		seen(t, "%s", strings.Join(c.args, " "))
	}
	for _, args := range [][]string{{"export", container}, {"import", container, container}} {
		out, err := a.run(a.commands, args...)
		require.NoError(t, err, out)
		var job struct{ JobID string }
		require.NoError(t, json.Unmarshal([]byte(out), &job))
		eventually(t, args[0]+" ends", func() bool {
			out, err = a.run(a.commands, "job", job.JobID)
			return err == nil && strings.Contains(out, `"status": "completed"`)
		})
		out, err = a.run(a.commands, "jobs")
		require.NoError(t, err, out)
		require.Contains(t, out, job.JobID)
		seen(t, "%s, job, jobs", args[0])
	}
}

// The command follows the redirect from messages/events to the event hub, and reads new events.
func TestAmenzhinskyWatchesEvents(t *testing.T) {
	a := startAmenzhinsky(t)
	d := a.answersMethods()
	require.NoError(t, d.Send(soon(t), &transport.Message{ID: "m-0", Body: []byte("before")}))
	const partitions = 4 // the default; the command has a reader for each
	sent := make(chan error, 1)
	go func() {
		ctx := soon(t)
		for a.hub.Links("", fault.LinkEvents) < partitions && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		sent <- d.Send(ctx, &transport.Message{ID: "m-1", Body: []byte("hello"),
			Properties: []transport.Property{{Name: "unit", Value: "C"}}})
	}()
	var e struct {
		MessageID, ConnectionDeviceID string
		Payload                       []byte
		Properties                    map[string]string
	}
	a.watch(fault.LinkEvents, &e, func() bool { return true }, a.commands, "watch-events")
	require.NoError(t, <-sent)
	require.Equal(t, []string{"m-1", "dev-1", "hello", "C"}, []string{e.MessageID, e.ConnectionDeviceID, string(e.Payload),
		e.Properties["unit"]})
	seen(t, "watch-events: %s", e.Payload)
}

// answersMethods connects the device. It answers the method "reboot", also of a component, with the
// payload.
func (a *amenzhinsky) answersMethods() *device.Client {
	a.t.Helper()
	creds, err := device.ParseConnectionString(a.dev.ConnectionString())
	require.NoError(a.t, err)
	network := netopt.Options{Plaintext: true, Dial: a.hub.Dial(testbroker.PortMQTT)}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { require.NoError(a.t, client.Close()) })
	for _, name := range []string{"reboot", "fan*reboot"} {
		require.NoError(a.t, client.HandleMethod(name, func(_ context.Context, m *device.MethodCall) (int, []byte) {
			return 200, m.Body
		}))
	}
	require.NoError(a.t, client.Open(soon(a.t)))
	return client
}
