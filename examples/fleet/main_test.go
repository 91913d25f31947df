package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	groupKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=" // of no service
	asFleet  = "FLEET_TEST_RUNS_THE_PROGRAM"
)

// The test binary is the program as well, for tests that need processes.
func TestMain(m *testing.M) {
	if os.Getenv(asFleet) != "" {
		main()
	}
	_ = flag.Set("test.parallel", "8") // the processes wait more than they compute
	status := m.Run()
	if dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(status)
}

// command returns the command that runs the fleet in a process of its own.
func command(t *testing.T, env string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), self, args...)
	// A process with the race detector waits at its end, for a second by default.
	race := "GORACE=" + os.Getenv("GORACE") + " atexit_sleep_ms=50"
	c.Env = append(os.Environ(), race, asFleet+"=1", "HUBLINE_GROUP_KEY="+groupKey, env)
	return c
}

// testhub starts a testhub that knows so many devices of the group. It returns the address of its
// control API.
func testhub(t *testing.T, count int) string {
	list, err := command(t, "", "-list", "-count", fmt.Sprint(count)).Output()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "devices.json")
	require.NoError(t, os.WriteFile(file, list, 0o600))
	return startTesthub(t, "-devices", file).Control
}

// ready is the first line of a testhub.
type ready struct {
	Control string
	DPS     struct {
		IDScope  string
		Enrolled []struct{ Key string }
	}
}

// dir has the testhub, which is built once; TestMain removes it.
var dir string

var buildTesthub = sync.OnceValues(func() (bin string, err error) {
	if dir, err = os.MkdirTemp("", "fleet"); err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "testhub")
	text, err := exec.CommandContext(context.Background(), "go", "build", "-o", bin,
		"github.com/hubline-iot/hubline/cmd/testhub").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return bin, nil
})

// startTesthub starts a testhub and returns its first line.
func startTesthub(t *testing.T, args ...string) (r ready) {
	bin, err := buildTesthub()
	require.NoError(t, err)
	c := exec.CommandContext(t.Context(), bin, append([]string{"-free", "-json", "-ca",
		filepath.Join(t.TempDir(), "ca.pem")}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewReader(out)
	first, err := lines.ReadBytes('\n')
	require.NoError(t, err)
	read := make(chan struct{})
	go func() { // until the process ends
		defer close(read)
		io.Copy(io.Discard, lines)
	}()
	t.Cleanup(func() {
		c.Process.Kill()
		<-read
		c.Wait()
	})
	require.NoError(t, json.Unmarshal(first, &r), string(first))
	return r
}

// ask sends a request to the control API; with a body it is a POST.
func ask(t *testing.T, address, body string, into any) {
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode, "%s: %s", address, text)
	require.NoError(t, json.Unmarshal(text, into), "%s", text)
}

// A page is a part of the hub's log.
type page struct {
	Messages []struct{ Device, MessageID string }
	Next     int
}

// messageIDs returns the device of each message that the hub has, by id. A page that is not full is
// the last one: devices that send faster than pages are read do not keep it going.
func messageIDs(t *testing.T, hub string) map[string]string {
	const limit = 10_000
	all := map[string]string{}
	for from := 0; ; {
		var p page
		ask(t, fmt.Sprintf("%s/messages?limit=%d&body=0&from=%d", hub, limit, from), "", &p)
		for _, m := range p.Messages {
			all[m.MessageID] = m.Device
		}
		if len(p.Messages) < limit {
			return all
		}
		from = p.Next
	}
}

// A worker is a process with a part of the fleet.
type worker struct {
	*exec.Cmd
	out, errs bytes.Buffer
	ledger    string
}

// start starts the process with that index.
func start(t *testing.T, index int, args ...string) *worker {
	w := &worker{ledger: filepath.Join(t.TempDir(), "ledger")}
	w.Cmd = command(t, fmt.Sprintf("JOB_COMPLETION_INDEX=%d", index), append(args, "-ledger", w.ledger)...)
	w.Stdout, w.Stderr = &w.out, &w.errs
	require.NoError(t, w.Start())
	return w
}

// end waits until the process has ended in order. It returns its counts and its ledger.
func (w *worker) end(t *testing.T) (c counts, ids []string) {
	require.NoError(t, w.Wait(), w.errs.String())
	require.NoError(t, json.Unmarshal(w.out.Bytes(), &c), w.out.String())
	text, err := os.ReadFile(w.ledger)
	require.NoError(t, err)
	return c, strings.Fields(string(text))
}

// Four processes share a fleet and know nothing of each other. The hub leaves the network in the
// middle. Each message that a process accepted is acknowledged, and at the hub.
func TestFourProcessesLoseNothing(t *testing.T) {
	t.Parallel() // it waits most of the time
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be asked to end")
	}
	const perJob, jobs = 50, 4
	hub := testhub(t, jobs*perJob)
	var workers []*worker
	for i, transport := range []string{"mqtt", "mqtt", "mqtt", "amqp"} {
		workers = append(workers, start(t, i, "-hub", hub, "-transport", transport, "-count", fmt.Sprint(jobs*perJob),
			"-per-job", fmt.Sprint(perJob), "-rate", "5", "-spread", "500ms", "-duration", "0"))
	}
	connected := func() {
		for i := range jobs * perJob {
			ask(t, fmt.Sprintf("%s/devices/fleet-%d/wait?connections=1&within=1m", hub, i), "", &struct{}{})
		}
	}
	connected()
	var cut struct{ ID int }
	ask(t, hub+"/faults", `{"kind":"Absent","for":"500ms"}`, &cut)
	ask(t, fmt.Sprintf("%s/faults/%d/wait?count=%d&within=1m", hub, cut.ID, (jobs-1)*perJob+1), "", &struct{}{})
	connected()
	before := messageIDs(t, hub)
	ask(t, fmt.Sprintf("%s/messages/wait?from=%d&count=%d&within=1m", hub, len(before), jobs*perJob), "", &struct{}{})
	for _, w := range workers {
		require.NoError(t, w.Process.Signal(syscall.SIGTERM))
	}

	acknowledged, senders := 0, map[string]bool{}
	var ledgers [][]string
	for i, w := range workers {
		c, ids := w.end(t)
		require.Equal(t, counts{First: i * perJob, Count: perJob, Sent: len(ids), Acknowledged: len(ids),
			Attempts: c.Attempts, Reconnects: c.Reconnects, LongestOutage: c.LongestOutage}, c)
		require.GreaterOrEqual(t, c.Reconnects, uint64(perJob), "each device was cut")
		require.Greater(t, c.Attempts, c.Reconnects)
		ledgers = append(ledgers, ids)
	}
	at := messageIDs(t, hub)
	for _, ids := range ledgers {
		for _, id := range ids {
			device, ok := at[id]
			require.True(t, ok, "%s was acknowledged and is not at the hub", id)
			require.True(t, strings.HasPrefix(id, device+"-"), "%s is from %s", id, device)
			senders[device] = true
			delete(at, id)
			acknowledged++
		}
	}
	require.Empty(t, at, "at the hub, in no ledger")
	require.Len(t, senders, jobs*perJob)
	var conflicts struct{ Conflicts []any }
	ask(t, hub+"/conflicts", "", &conflicts)
	require.Empty(t, conflicts.Conflicts)
	t.Logf("%d messages of %d devices", acknowledged, len(senders))
}

// The end of -duration is an end in order. A device that the hub does not know fails the process,
// which says why.
func TestDurationAndUnknownDevices(t *testing.T) {
	t.Parallel() // it waits most of the time
	hub := testhub(t, 2)
	c, ids := start(t, 0, "-hub", hub, "-count", "2", "-rate", "100", "-size", "1000", "-duration", "1s",
		"-transport", "http").end(t)
	require.NotEmpty(t, ids)
	require.Equal(t, c.Sent, c.Acknowledged)
	var p struct{ Messages []struct{ Body string } }
	ask(t, hub+"/messages?limit=1", "", &p)
	require.Len(t, p.Messages[0].Body, 1000)

	w := start(t, 0, "-hub", hub, "-first", "2", "-count", "1", "-policy", "none", "-duration", "0")
	var exit *exec.ExitError
	require.True(t, errors.As(w.Wait(), &exit))
	require.Equal(t, 1, exit.ExitCode())
	require.Contains(t, w.errs.String(), "1 devices stopped; the first error: ")
	require.Contains(t, w.errs.String(), "nauthorized")
	require.NoError(t, json.Unmarshal(w.out.Bytes(), &c), w.out.String())
	require.Equal(t, 1, c.Stopped)
	require.Zero(t, c.Acknowledged)
}

// Devices of a group that no hub knows register by the key of the group, and send.
func TestDevicesRegisterFirst(t *testing.T) {
	t.Parallel() // it waits most of the time
	hub := startTesthub(t, "-group", "fleet", "-dps-retry-after", "0s")
	c := command(t, "HUBLINE_GROUP_KEY="+hub.DPS.Enrolled[0].Key, "-hub", hub.Control, "-provision", hub.DPS.IDScope,
		"-count", "20", "-rate", "20", "-duration", "3s")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	require.NoError(t, err, errs.String())
	var ended counts
	require.NoError(t, json.Unmarshal(out, &ended))
	require.Equal(t, ended.Sent, ended.Acknowledged)
	senders := map[string]bool{}
	for _, device := range messageIDs(t, hub.Control) {
		senders[device] = true
	}
	require.Len(t, senders, 20)
	var registered struct{ Registrations []any }
	ask(t, hub.Control+"/dps/registrations", "", &registered)
	require.Len(t, registered.Registrations, 20)
}
