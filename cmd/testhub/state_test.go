package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// logged returns all messages of the log.
func (p *program) logged() []any {
	p.t.Helper()
	return p.good("GET", "/messages?limit=10000", "")["messages"].([]any)
}

// accountKey returns the key in a connection string of the storage.
func accountKey(text string) string {
	_, key, _ := strings.Cut(text, "AccountKey=")
	return key[:len("==")+86]
}

// Everything that the hub has acknowledged before it is killed is there when it starts again: over
// each protocol, with several devices that send at the same time.
func TestStateSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"-state", dir, "-device", "dev-mqtt", "-device", "dev-amqp", "-device", "dev-https", "-device", "off",
		"-enroll", "sensor-1", "-dps-retry-after", "0s"}
	killed := process(t, args...)
	p := spawn(t, killed)
	pem, err := os.ReadFile(p.ready.CA)
	require.NoError(t, err)
	p.good("PATCH", "/devices/off/twin/desired", `{"interval":60,"list":[1.50,"x"]}`)
	p.good("PATCH", "/devices/off/twin/tags", `{"site":{"roof":true}}`)
	for _, id := range []string{"c-1", "c-2"} {
		p.good("POST", "/devices/off/c2d", `{"messageId":"`+id+`","body":"reboot","ack":"full"}`)
	}
	p.good("POST", "/devices/off/disable", "")
	twin := p.good("GET", "/devices/off/twin", "")
	assigned := p.register("sensor-1")

	var acknowledged sync.Map
	var sent, total atomic.Int64
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	var senders sync.WaitGroup
	for over := range transports {
		// A client that does not retry: an error means that nothing was acknowledged.
		c := p.client("dev-"+over, over, &device.Options{})
		require.NoError(t, c.Open(ctx))
		for n := range 8 {
			senders.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprintf("%s-%d-%d", over, n, i)
					sent.Add(1)
					if c.Send(ctx, &transport.Message{ID: id, Body: []byte("body of " + id)}) != nil {
						return
					}
					acknowledged.Store(id, true)
					if total.Add(1) == 500 {
						killed.Process.Kill()
						cancel()
					}
				}
			})
		}
	}
	senders.Wait()
	killed.Wait()
	require.GreaterOrEqual(t, total.Load(), int64(500))

	again := spawn(t, process(t, args...))
	pem2, err := os.ReadFile(again.ready.CA)
	require.NoError(t, err)
	require.Equal(t, string(pem), string(pem2), "the clients' trust holds")
	require.Equal(t, p.ready.Devices, again.ready.Devices[:4], "with the same keys")
	require.Equal(t, "sensor-1", again.ready.Devices[4].Device, "the service had registered it")
	require.Equal(t, p.ready.Service, again.ready.Service)
	require.Equal(t, accountKey(p.ready.Storage.ConnectionString), accountKey(again.ready.Storage.ConnectionString))
	require.Equal(t, p.ready.DPS.Enrolled, again.ready.DPS.Enrolled)
	stored := make(map[string]int)
	for i, m := range again.logged() {
		m := m.(map[string]any)
		require.EqualValues(t, i, m["n"], "sequence numbers go on")
		require.Equal(t, "body of "+m["messageId"].(string), m["body"])
		stored[m["messageId"].(string)]++
	}
	acknowledged.Range(func(id, _ any) bool {
		require.Positive(t, stored[id.(string)], "%s of %d was acknowledged", id, sent.Load())
		return true
	})
	require.Equal(t, twin, again.good("GET", "/devices/off/twin", ""))
	waiting := again.good("GET", "/devices/off/c2d", "")["c2d"].([]any)
	require.Len(t, waiting, 2)
	require.Equal(t, []any{"c-1", "c-2"},
		[]any{waiting[0].(map[string]any)["messageId"], waiting[1].(map[string]any)["messageId"]})
	registered := again.good("GET", "/dps/registrations", "")["registrations"].([]any)
	require.Equal(t, assigned.DeviceID, registered[0].(map[string]any)["device"])
	ctx = soon(t)
	late := again.client("off", "mqtt", nil)
	require.Error(t, late.Open(ctx), "it is still disabled")
	again.good("POST", "/devices/off/enable", "")
	c := again.client("dev-mqtt", "mqtt", nil)
	require.NoError(t, c.Open(ctx))
	require.NoError(t, c.Send(ctx, &transport.Message{ID: "after", Body: []byte("body of after")}))
	log := again.logged()
	require.EqualValues(t, len(log)-1, log[len(log)-1].(map[string]any)["n"])
}

// A reset is a change of the state like others.
func TestAResetSurvivesToo(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "-state", dir)
	c := p.client("dev-1", "mqtt", nil)
	require.NoError(t, c.Open(soon(t)))
	require.NoError(t, c.Send(soon(t), &transport.Message{ID: "1"}))
	p.good("PATCH", "/devices/dev-1/twin/tags", `{"a":1}`)
	p.good("POST", "/reset", "")
	p.good("PATCH", "/devices/dev-1/twin/tags", `{"b":2}`)
	require.NoError(t, c.Close())
	require.Zero(t, p.stop())
	again := start(t, "-state", dir)
	require.Empty(t, again.logged())
	require.Equal(t, map[string]any{"b": 2.0}, again.good("GET", "/devices/dev-1/twin", "")["tags"])
}

// A reset does not remove the devices of an earlier run, which this one does not declare.
func TestAResetKeepsTheDevicesOfTheState(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "-state", dir)
	p.good("POST", "/devices", `{"id":"added","modules":[{"id":"cam"}]}`)
	require.Zero(t, p.stop())
	again := start(t, "-state", dir)
	again.good("POST", "/devices", `{"id":"late"}`)
	again.good("POST", "/reset", "")
	var left []any
	for _, d := range again.good("GET", "/devices", "")["devices"].([]any) {
		left = append(left, d.(map[string]any)["device"])
	}
	require.Equal(t, []any{"added", "added/cam", "dev-1"}, left)
	require.NoError(t, again.client("dev-1", "mqtt", nil).Open(soon(t)))
}

// The newest messages stay, with their numbers, also when fewer are kept than before.
func TestStateKeepsTheNewestMessages(t *testing.T) {
	dir := t.TempDir()
	for _, run := range []struct{ keep, send, first, last int }{{10, 25, 15, 24}, {10, 0, 15, 24}, {3, 0, 22, 24},
		{10, 1, 22, 25}} {
		p := start(t, "-state", dir, "-keep", fmt.Sprint(run.keep))
		c := p.client("dev-1", "mqtt", nil)
		require.NoError(t, c.Open(soon(t)))
		for range run.send {
			require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte("x")}))
		}
		require.NoError(t, c.Close())
		log := p.logged()
		require.EqualValues(t, run.first, log[0].(map[string]any)["n"], "%+v", run)
		require.EqualValues(t, run.last, log[len(log)-1].(map[string]any)["n"], "%+v", run)
		require.Len(t, log, run.last-run.first+1)
		require.Zero(t, p.stop())
	}
}

// A device of the state stays as it is; only keys of the file of devices replace its keys.
func TestDeclaredDevicesAndTheState(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "-state", dir, "-device", "a", "-device", "b")
	p.good("POST", "/devices/a/disable", "")
	require.Zero(t, p.stop())
	const key = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	file := write(t, "hub.json", `{"devices":[{"id":"b","primaryKey":"`+key+`"},{"id":"c"}]}`)
	again := start(t, "-state", dir, "-devices", file)
	require.Equal(t, []string{"b", "c", "a"},
		[]string{again.ready.Devices[0].Device, again.ready.Devices[1].Device, again.ready.Devices[2].Device})
	require.Contains(t, again.ready.Devices[0].ConnectionString, key)
	require.Equal(t, p.ready.Devices[0], again.ready.Devices[2])
	require.Error(t, again.client("a", "mqtt", nil).Open(soon(t)))
}

// A second testhub, a damaged file and a file of a newer version are errors, and change nothing.
func TestAStateThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "-state", dir)
	refused := func(dir string, want ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		ca := filepath.Join(t.TempDir(), "ca.pem")
		require.Equal(t, 1, run(t.Context(), []string{"-free", "-state", dir, "-ca", ca}, &stdout, &stderr))
		for _, w := range append(want, "flag -state") {
			require.Contains(t, stderr.String(), w)
		}
		require.NoFileExists(t, ca)
		require.Empty(t, stdout.String())
	}
	refused(dir, dir, "in use by another testhub")
	require.Zero(t, p.stop())
	file := filepath.Join(dir, "testhub.db")
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o077, "it has keys")
	for name, content := range map[string][]byte{
		"empty": {}, "another file": []byte("hello"), "cut": whole[:len(whole)/2], "cut early": whole[:5000],
		"changed": bytes.Replace(bytes.Clone(whole), []byte(`"Keys"`), []byte(`"Kexs"`), math.MaxInt),
		"zeros":   make([]byte, len(whole)),
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "testhub.db")
		require.NoError(t, os.WriteFile(file, content, 0o600), name)
		refused(dir, "damaged", "testhub.db", "move it away")
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, content, after, "%s: it is kept for a repair", name)
	}
	again := start(t, "-state", dir)
	require.Equal(t, p.ready.Devices, again.ready.Devices)
}

// A hub whose disk is full ends and says so. What it has acknowledged is there when there is room.
func TestADiskThatIsFull(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it has no limit of file sizes")
	}
	dir := t.TempDir()
	c := process(t, "-state", dir)
	args := append([]string{"-c", `ulimit -f 600 && exec "$0" "$@"`}, c.Args...)
	limited := exec.CommandContext(t.Context(), "sh", args...)
	var stderr bytes.Buffer
	limited.Stderr = &stderr
	p := spawn(t, limited)
	sender := p.client("dev-1", "mqtt", &device.Options{})
	require.NoError(t, sender.Open(soon(t)))
	ctx, cancel := context.WithCancel(soon(t))
	go func() {
		defer cancel()
		limited.Wait()
	}()
	acknowledged := 0
	for sender.Send(ctx, &transport.Message{Body: make([]byte, 4000)}) == nil {
		acknowledged++
		require.Less(t, acknowledged, 1000, "the file has no limit")
	}
	<-ctx.Done()
	require.Equal(t, 1, limited.ProcessState.ExitCode())
	require.Contains(t, stderr.String(), "flag -state: ")
	require.Contains(t, stderr.String(), "make room on the disk")
	require.NotZero(t, acknowledged)
	require.GreaterOrEqual(t, len(start(t, "-state", dir).logged()), acknowledged)
}

// Without a directory, or with a file in its place, the error says so.
func TestAStateDirectoryThatCannotBe(t *testing.T) {
	file := write(t, "file", "x")
	var stdout, stderr bytes.Buffer
	require.Equal(t, 1, run(t.Context(), []string{"-free", "-state", filepath.Join(file, "sub")}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "flag -state")
	require.Contains(t, stderr.String(), "give a directory")
	stderr.Reset()
	require.Equal(t, 2, run(t.Context(), []string{"-free", "-state-sync"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "give -state too")
}
