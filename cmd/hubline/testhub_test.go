package main

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/update/adusign"
)

// buildTesthub builds the program testhub.
func buildTesthub(t *testing.T) string {
	program := filepath.Join(t.TempDir(), "testhub")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/hubline-iot/hubline/cmd/testhub").CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

// startTesthub starts it with these flags and returns the address of its control API.
func startTesthub(t *testing.T, program string, flags ...string) string {
	hub := exec.CommandContext(t.Context(), program, append([]string{"-free"}, flags...)...)
	hub.Dir = t.TempDir()
	lines, err := hub.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, hub.Start())
	t.Cleanup(func() {
		_ = hub.Process.Kill() // it may have ended
		_ = hub.Wait()
	})
	at := ""
	for scan := bufio.NewScanner(lines); at == "" && scan.Scan(); {
		if page, ok := strings.CutPrefix(scan.Text(), "page "); ok {
			at = strings.TrimSpace(page)
		}
	}
	require.NotEmpty(t, at)
	return at
}

// onLoopback runs a command line as the program does, against real ports.
func onLoopback(t *testing.T, env map[string]string, args ...string) (status int, out, log string) {
	var o, l buffer
	x := &tool{in: strings.NewReader(""), out: &o, log: &l,
		world: &target.World{Getenv: func(name string) string { return env[name] }}}
	status = x.main(soon(t), args)
	return status, o.String(), l.String()
}

// -testhub needs no file, no address and no certificate, and a shell knows the devices. A hub of
// the profile mqttV5 takes the certificate that testhub made for the device.
func TestADeviceOfATesthub(t *testing.T) {
	program := buildTesthub(t)
	updates, err := filepath.Abs("../testhub/testdata/updates")
	require.NoError(t, err)
	env := map[string]string{target.EnvHub: startTesthub(t, program, "-device", "pump-1", "-device", "pump-1/cam",
		"-device", "dev-1", "-enroll", "sensor-1", "-updates", updates)}
	for _, args := range [][]string{{"pump-1", "-transport", "mqtt"}, {"pump-1/cam", "-transport", "amqp-ws"},
		{"dev-1", "-transport", "http"}} {
		status, _, log := onLoopback(t, env, append([]string{"send", "-no-proxy", "-body", "x", "-testhub"}, args...)...)
		require.Equal(t, exitOK, status, log)
		require.Contains(t, log, "1 acknowledged")
	}
	_, out, _ := onLoopback(t, env, "__complete", "listen", "-testhub", "")
	require.Equal(t, "dev-1\npump-1\npump-1/cam\n:4\n", out)

	for want, args := range map[string][]string{
		`there is no device "pump-2"; there are dev-1, pump-1, pump-1/cam`: {"listen", "-testhub", "pump-2"},
		"-registration-id sensor-1 -address dps=127.0.0.": {"update", "check", "-property", "model=x",
			"-testhub", "sensor-1"},
		"leave out -connect and -connect-file": {"listen", "-testhub", "x", "-connect-file", "y"},
		"-testhub: the device registers":       {"provision", "-testhub", "x"},
	} {
		status, _, log := onLoopback(t, env, args...)
		require.Equal(t, exitUsage, status)
		require.Contains(t, log, want)
	}
	for hub, want := range map[string]string{
		"":                   "the variable HUB has no address",
		"127.0.0.1:1":        "the variable HUB has no address",
		"http://127.0.0.1:1": "no testhub answers at http://127.0.0.1:1 (HUB): dial tcp 127.0.0.1:1",
	} {
		status, _, log := onLoopback(t, map[string]string{target.EnvHub: hub}, "listen", "-testhub", "x")
		require.Equal(t, exitUsage, status)
		require.Contains(t, log, want)
		_, out, _ := onLoopback(t, map[string]string{target.EnvHub: hub}, "__complete", "listen", "-testhub", "")
		require.Equal(t, ":4\n", out)
	}

	roots, err := target.TesthubRootKeys(func(name string) string { return env[name] })
	require.NoError(t, err)
	trusted, err := adusign.RootsOf(roots)
	require.NoError(t, err)
	require.NotEmpty(t, trusted)

	env[target.EnvHub] = startTesthub(t, program, "-profile", "mqttV5", "-device", "pump-1")
	status, _, log := onLoopback(t, env, "send", "-no-proxy", "-body", "x", "-testhub", "pump-1")
	require.Equal(t, exitOK, status, log)
	status, _, log = onLoopback(t, env, "update", "check", "-property", "model=x", "-testhub", "pump-1")
	require.Equal(t, exitUsage, status)
	require.Contains(t, log, "it has no update service; start testhub with -updates DIR")
}
