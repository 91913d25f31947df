package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/atomicfile"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// updateDesk is a shell of the device pump-2 at a provisioning service with updates.
type updateDesk struct {
	*shell
	dps     *testbroker.DPS
	updates *testbroker.Updates
	flags   []string // who the device is, and what it trusts
	dir     string
}

var toaster = updatedata.UpdateID{Provider: "Contoso", Name: "Toaster", Version: "1.1"}

// newUpdateDesk has the update 1.1 of toasters published.
func newUpdateDesk(t *testing.T) *updateDesk {
	s := newShell(t, &testbroker.Options{Seed: 1})
	dps, keys, _ := s.service()
	d := &updateDesk{shell: s, dps: dps, dir: filepath.Join(t.TempDir(), "updates")}
	toRest, toDPS := s.dial, hubfixture.AtPorts(dps)
	s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, _, _ := net.SplitHostPort(address); host == dps.HostName() {
			return toDPS(ctx, network, address)
		}
		return toRest(ctx, network, address)
	}
	var err error
	d.updates, err = testbroker.NewUpdates(nil)
	require.NoError(t, err)
	dps.LinkUpdates(d.updates)
	require.NoError(t, d.updates.Publish(toasterUpdate()))
	d.flags = []string{"-id-scope", dps.IDScope(), "-registration-id", "pump-2",
		"-key-file", s.file("key", keys["pump-2"]), "-dps", dps.HostName(), "-dir", d.dir,
		"-property", "manufacturer=Contoso", "-property", "model=Toaster",
		"-root-keys", s.file("roots.json", string(d.updates.RootKeyPackage()))}
	return d
}

// toasterUpdate is the update 1.1 of toasters.
func toasterUpdate() updatedata.Update {
	return updatedata.Update{
		ID: toaster, Compatibility: []map[string]string{{"manufacturer": "Contoso", "model": "Toaster"}},
		Steps: []updatedata.Step{{Handler: "contoso/script:1", Files: []string{"image.bin", "notes.txt"}}},
		Files: []updatedata.File{{Name: "image.bin", Content: []byte(strings.Repeat("new ", 50_000))},
			{Name: "notes.txt", Content: []byte("crisper")}},
	}
}

func (d *updateDesk) deploy(workflow string) {
	_, err := d.updates.Deploy(updatedata.Deployment{WorkflowID: workflow, Update: toaster})
	require.NoError(d.t, err)
}

// update runs a command with the flags, and returns its status and what it prints.
func (d *updateDesk) update(args ...string) (status int, out string) {
	d.out, d.log = buffer{}, buffer{}
	status = d.run(append(append([]string{"update"}, args...), d.flags...)...)
	return status, d.out.String()
}

// A folder that has the updates of another device is refused: what is installed there is not
// installed here.
func TestAFolderOfUpdatesBelongsToADevice(t *testing.T) {
	d := newUpdateDesk(t)
	d.deploy("w-1")
	status, _ := d.update("apply")
	require.Equal(t, exitOK, status, d.log.String())
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "device"), []byte("pump-1"), 0o600))
	for _, command := range []string{"apply", "check"} {
		status, _ = d.update(command)
		require.Equal(t, exitUsage, status)
		require.Contains(t, d.log.String(), `has the updates of "pump-1"; give "pump-2" a folder of its own`)
	}
	require.NoError(t, os.Remove(filepath.Join(d.dir, "device"))) // a folder of an older program
	status, out := d.update("apply")
	require.Equal(t, exitOK, status, d.log.String())
	require.Contains(t, out, "no update for ")
	owner, err := os.ReadFile(filepath.Join(d.dir, "device"))
	require.NoError(t, err)
	require.Equal(t, "pump-2", string(owner))
}

func TestUpdateCheckVerifiesTheOffer(t *testing.T) {
	d := newUpdateDesk(t)
	status, out := d.update("check")
	require.Equal(t, exitOK, status, d.log.String())
	require.Equal(t, "no update for manufacturer=Contoso model=Toaster\n", out)

	d.deploy("w-1")
	status, out = d.update("check")
	require.Equal(t, exitOK, status, d.log.String())
	require.Equal(t, "Contoso/Toaster/1.1 is offered, verified by a trusted key\nworkflow w-1\n"+
		"step 1  contoso/script:1  image.bin (200 kB), notes.txt (7 B)\n", out)
	_, out = d.update("check", "-json")
	var offer offered
	require.NoError(t, json.Unmarshal([]byte(out), &offer))
	require.True(t, offer.Offered)
	require.Equal(t, []updateFile{{"image.bin", 200_000}, {"notes.txt", 7}}, offer.Steps[0].Files)
	require.Empty(t, d.updates.Device("pump-2").Last().Reports, "nothing is reported")
	require.NoDirExists(t, d.dir)

	d.updates.RevokeSigningKey()
	_, _ = d.update("check")
	trusted := d.flags
	d.flags = d.flags[:len(d.flags)-2] // Microsoft's root keys
	status, out = d.update("check")
	require.Equal(t, exitTrust, status)
	require.Empty(t, out)
	require.Contains(t, d.log.String(), "workflow w-1 is offered, and is not to be trusted: ")
	d.flags = append(trusted, "-installed", "1.0")
	status, _ = d.update("check")
	require.Equal(t, exitUsage, status)
	require.Contains(t, d.log.String(), "write PROVIDER/NAME/VERSION")
	d.flags = append(trusted, "-transport", "mqtt")
	status, _ = d.update("check")
	require.Equal(t, exitUsage, status)
	require.Contains(t, d.log.String(), "-transport: updates of a device that registers come over HTTPS")
}

func TestUpdateApplyRunsTheProgramAndReports(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program of this test is a shell script")
	}
	d := newUpdateDesk(t)
	installed := filepath.Join(t.TempDir(), "installed")
	script := d.file("install.sh", `#!/bin/sh
set -e
cat "$1" "$2" >'`+installed+`'
echo "$HUBLINE_UPDATE $HUBLINE_STEP"
`)
	require.NoError(t, os.Chmod(script, 0o700))
	status, out := d.update("apply", "-exec", script)
	require.Equal(t, exitOK, status, d.log.String())
	require.Equal(t, "no update for manufacturer=Contoso model=Toaster\n", out)

	d.deploy("w-1")
	status, out = d.update("apply", "-exec", script)
	require.Equal(t, exitOK, status, d.log.String())
	require.Equal(t, "w-1: SUCCEEDED\n", out)
	require.Contains(t, d.log.String(), "Contoso/Toaster/1.1 1\n")
	got, err := os.ReadFile(installed)
	require.NoError(t, err)
	require.Len(t, got, 200_007)
	require.Equal(t, updatedata.Outcome("SUCCEEDED"), d.updates.Device("pump-2").Last().Outcome())
	d.out = buffer{}
	require.Equal(t, exitOK, d.run("update", "status", "-dir", d.dir), d.log.String())
	require.Equal(t, "phase     idle\nupdate    Contoso/Toaster/1.1\nworkflow  w-1\nresult    SUCCEEDED\n"+
		"reports   0 to send\n", d.out.String())

	require.NoError(t, os.Remove(installed))
	status, _ = d.update("apply", "-exec", script)
	require.Equal(t, exitOK, status, d.log.String())
	require.NoFileExists(t, installed, "an update is installed once")
}

// Files that are there already are those of the update only if they have its content: another
// program, or an update of the same name, may have left them. A damaged part begins again.
func TestUpdateApplyInstallsTheFilesOfTheOffer(t *testing.T) {
	d := newUpdateDesk(t)
	folder := filepath.Join(d.dir, "files", "Contoso%2FToaster%2F1.1")
	var flushed []string
	flushFolder = func(path string) {
		require.FileExists(t, filepath.Join(folder, "notes.txt"), "the names are flushed last")
		flushed = append(flushed, path)
	}
	defer func() { flushFolder = atomicfile.FlushFolder }()
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "image.bin"), bytes.Repeat([]byte("old "), 50_000), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "notes.txt.part"), []byte("burnt"), 0o600))
	d.deploy("w-1")
	status, out := d.update("apply")
	require.Equal(t, exitOK, status, d.log.String())
	require.Equal(t, "w-1: SUCCEEDED\n", out)
	for _, f := range toasterUpdate().Files {
		got, err := os.ReadFile(filepath.Join(folder, f.Name))
		require.NoError(t, err)
		require.True(t, bytes.Equal(f.Content, got), f.Name)
	}
	require.Equal(t, []string{folder, filepath.Dir(folder), d.dir}, flushed)
}

// A program that fails, and a server that lies, fail the update: it is reported, and no file stays.
func TestUpdateApplyFails(t *testing.T) {
	for name, want := range map[string]string{"program": "false: exit status 1", "file": "SHA-256"} {
		d := newUpdateDesk(t)
		d.deploy("w-1")
		args := []string{"apply"}
		if name == "program" {
			args = append(args, "-exec", "false")
		} else {
			d.dps.Inject(fault.Fault{Kind: fault.WrongFile, Text: "content", Times: -1})
		}
		status, out := d.update(args...)
		require.Equal(t, exitFailed, status, d.log.String())
		require.Equal(t, "w-1: FAILED\n", out)
		require.Contains(t, d.log.String(), want)
		last := d.updates.Device("pump-2").Last()
		require.Equal(t, updatedata.Outcome("FAILED"), last.Outcome())
		left, _ := os.ReadDir(filepath.Join(d.dir, "files"))
		require.Empty(t, left)
		status, _ = d.update("apply")
		require.Equal(t, exitOK, status, "the service knows how it ended: %s", d.log.String())
	}
}

// A device with a connection string has its updates in the twin of its hub.
func TestUpdatesThroughTheTwin(t *testing.T) {
	s := newShell(t, &testbroker.Options{Seed: 1})
	d := &updateDesk{shell: s, dir: filepath.Join(t.TempDir(), "updates")}
	var err error
	d.updates, err = testbroker.NewUpdates(nil)
	require.NoError(t, err)
	require.NoError(t, d.updates.Publish(toasterUpdate()))
	d.updates.Sign(nil) // the first signature makes keys, which takes seconds
	s.hub.LinkUpdates(d.updates)
	d.deploy("w-1")
	d.flags = []string{"-dir", d.dir, "-property", "manufacturer=Contoso", "-property", "model=Toaster",
		"-root-keys", s.file("roots.json", string(d.updates.RootKeyPackage()))}
	status, out := d.update("check")
	require.Equal(t, exitOK, status, d.log.String())
	require.Contains(t, out, "Contoso/Toaster/1.1 is offered")
	status, out = d.update("apply")
	require.Equal(t, exitOK, status, d.log.String())
	require.Equal(t, "w-1: SUCCEEDED\n", out)
	require.Equal(t, updatedata.Outcome("SUCCEEDED"), d.updates.Device("pump-1").Last().Outcome())
	require.FileExists(t, filepath.Join(d.dir, "files", "Contoso%2FToaster%2F1.1", "image.bin"))

	status, _ = d.update("check", "-transport", "http")
	require.Equal(t, exitUsage, status)
	require.Contains(t, d.log.String(), "a hub over MQTT or AMQP")
}

// Without an answer the command ends after -connect-timeout; an interruption leaves the state for
// the next one.
func TestUpdateApplyWithoutAnAnswer(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		d := newUpdateDesk(t)
		d.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
		status, _ := d.update("apply", "-connect-timeout", "10s")
		require.Equal(t, exitNetwork, status)
		require.Contains(t, d.log.String(), "no answer from the service within 10s: http call: network failure: no route")

		d.log = buffer{}
		ctx, interrupt := context.WithTimeout(t.Context(), time.Second)
		defer interrupt()
		status = d.runIn(ctx, append([]string{"update", "apply"}, d.flags...)...)
		require.Equal(t, exitFailed, status)
		require.Contains(t, d.log.String(), "the next hubline update apply goes on with it")
	})
}
