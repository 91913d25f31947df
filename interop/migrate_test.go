package interop

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// guide returns the program before the migration, and what both programs print.
func guide(t *testing.T, name, language string) (before, prints string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "migrate", name+".md"))
	require.NoError(t, err)
	block := func(language string) string {
		m := regexp.MustCompile("(?m)^```" + language + "\n((?s:.*?))^```$").FindSubmatch(text)
		require.NotNil(t, m, "%s has no %s", name, language)
		return string(m[1])
	}
	return block(language), block("text")
}

// buildBefore builds a program of a guide as a package of the module in the folder.
func buildBefore(t *testing.T, name, folder string) (program string) {
	t.Helper()
	before, _ := guide(t, name, "golang")
	dir := t.TempDir()
	source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(source, []byte(before), 0o600))
	at, err := filepath.Abs(folder)
	require.NoError(t, err)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(at, "before", "main.go"): source}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	program = filepath.Join(dir, name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, "./before")
	cmd.Dir = folder
	if folder != "." { // a module outside of the workspace
		cmd.Env = append(os.Environ(), "GOWORK=off")
	}
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "dial tcp") {
		missing(t, "the Go module proxy")
	}
	require.NoError(t, err, string(out))
	return program
}

// The programs of the guides for paho and autopaho do what the ones after the migration do.
func TestProgramsBeforeTheMigrationFromPaho(t *testing.T) {
	for _, name := range []string{"paho", "autopaho"} {
		t.Run(name, func(t *testing.T) {
			_, prints := guide(t, name, "golang")
			hub, dev := hubfixture.OpenDevice(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{
				Telemetry: "site/{device}/up", Commands: "site/{device}/down"}}, "pump-1")
			addr, err := hub.Listen(testbroker.PortMQTT, "127.0.0.1:0")
			require.NoError(t, err)
			cmd := exec.CommandContext(soon(t), buildBefore(t, name, "."))
			cmd.Env = append(os.Environ(), "BROKER=mqtt://"+addr.String(), "PASSWORD="+dev.PrimaryKey)
			done := make(chan error, 1)
			go func() { // ends with the wait
				err := hub.WaitMessages(soon(t), 1)
				if err == nil {
					err = hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("stop")})
				}
				done <- err
			}()
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			require.NoError(t, <-done)
			require.Equal(t, slices.Sorted(strings.Lines(prints)), slices.Sorted(strings.Lines(string(out))))
			seen(t, "the program of docs/migrate/%s.md", name)
		})
	}
}

// The client of amenzhinsky/iothub has the roots of its own, so its program is only compiled.
func TestTheProgramBeforeTheMigrationFromAmenzhinskyCompiles(t *testing.T) {
	require.FileExists(t, buildBefore(t, "amenzhinsky", filepath.Join("testdata", "amenzhinsky")))
	seen(t, "compiles")
}

// The program of the guide for the SDK for Node.js, unchanged, against a hub.
func TestTheProgramBeforeTheMigrationFromTheDeviceSDK(t *testing.T) {
	const host = "127.77.22.1"
	before, prints := guide(t, "node", "js")
	modules := filepath.Join(nodeDir(t), "node_modules")
	hub, dev := hubfixture.OpenDevice(t, &testbroker.Options{HostName: host}, "dev-1")
	if _, err := hub.Listen(testbroker.PortMQTTS, net.JoinHostPort(host, "8883")); err != nil {
		missing(t, "the address "+host)
	}
	dir := t.TempDir()
	program, ca := filepath.Join(dir, "before.js"), filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(program, []byte(before), 0o600))
	require.NoError(t, os.WriteFile(ca, hub.CAPEM(), 0o600))
	_, err := hub.PatchDesired("dev-1", `{"interval":30}`)
	require.NoError(t, err)
	cmd := exec.CommandContext(soon(t), "node", program)
	cmd.Env = append(os.Environ(), "IOTHUB_DEVICE_CONNECTION_STRING="+dev.ConnectionString(), "NODE_EXTRA_CA_CERTS="+ca,
		"NODE_PATH="+modules)
	done := make(chan error, 1)
	go func() { // ends with the waits
		err := hub.WaitReported(soon(t), "dev-1", func(doc hubdata.Twin) bool {
			return strings.Contains(string(doc.Reported), `"value":30`)
		})
		if err == nil {
			err = hub.WaitMessages(soon(t), 1)
		}
		if err == nil {
			_, err = hub.CallMethod(soon(t), "dev-1", hubdata.MethodCall{Name: "reboot", Payload: []byte("{}"),
				ConnectTimeout: 30 * time.Second})
		}
		done <- err
	}()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s%s", out, stderr.String())
	require.NoError(t, <-done)
	require.Equal(t, slices.Sorted(strings.Lines(prints)), slices.Sorted(strings.Lines(string(out))))
	seen(t, "the program of docs/migrate/node.md")
}
