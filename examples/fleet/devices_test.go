package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
)

// The processes share out all devices, each to exactly one.
func TestJobsShareOutAllDevices(t *testing.T) {
	fleet := devices{first: 7, count: 10}
	for _, c := range []struct {
		perJob       int
		index        string
		first, count int
	}{
		{0, "", 7, 10}, {4, "0", 7, 4}, {4, "1", 11, 4}, {4, "2", 15, 2}, {5, "1", 12, 5}, {10, "0", 7, 10}, {99, "0", 7, 10},
	} {
		got, err := fleet.job(c.perJob, c.index)
		require.NoError(t, err)
		require.Equal(t, devices{first: c.first, count: c.count}, got, "%v", c)
	}
	for index, problem := range map[string]string{"3": "3 processes", "": "JOB_COMPLETION_INDEX", "-1": "not a number",
		"x": "not a number"} {
		_, err := fleet.job(4, index)
		require.ErrorContains(t, err, problem)
	}
	_, err := fleet.job(5, "2")
	require.ErrorContains(t, err, "2 processes")
}

// The list has the keys that the devices sign with.
func TestTheListHasTheDerivedKeys(t *testing.T) {
	fleet := devices{prefix: "a-", groupKey: groupKey, first: 8, count: 3}
	var out bytes.Buffer
	require.NoError(t, fleet.print(&out))
	var list struct {
		Devices []struct{ ID, PrimaryKey string }
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &list))
	require.Len(t, list.Devices, 3)
	key, err := provisioning.DeriveKey(groupKey, "a-10")
	require.NoError(t, err)
	require.Equal(t, "a-10", list.Devices[2].ID)
	require.Equal(t, key, list.Devices[2].PrimaryKey)
}

// Rules have the names of the simulator. A spread that is set replaces that of the rules.
func TestRulesByName(t *testing.T) {
	for _, name := range []string{"default", "recommended", "none", "breaker", "Azure C"} {
		r, err := rulesOf(name, 1000)
		require.NoError(t, err)
		require.Equal(t, name, r.Name)
	}
	_, err := rulesOf("hope", 1)
	require.ErrorContains(t, err, "default, ")
	r, err := rulesOf("recommended", 1000)
	require.NoError(t, err)
	for spread, want := range map[time.Duration]time.Duration{-1: r.ReconnectSpread, 0: -1, time.Second: time.Second} {
		o, err := optionsOf(&r, spread, nil)
		require.NoError(t, err)
		require.Equal(t, want, o.ReconnectSpread)
	}
	r, err = rulesOf("Azure C", 1000)
	require.NoError(t, err)
	o, err := optionsOf(&r, -1, nil)
	require.NoError(t, err)
	require.Equal(t, 0.8, o.RenewAt)
}

// The ledger has what was acknowledged, and nothing else.
func TestLedger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger")
	l, err := openLedger(file, devices{first: 5, count: 2})
	require.NoError(t, err)
	l.settled("a", nil)
	l.settled("b", errors.New("lost"))
	l.settled("c", nil)
	l.ended(device.Stats{Attempts: 4, Connections: 3, LongestOutage: time.Second}, nil)
	l.ended(device.Stats{Attempts: 1}, errors.New("gone"))
	var out bytes.Buffer
	require.EqualError(t, l.close(&out), "1 messages failed, 1 devices stopped; the first error: lost")
	require.JSONEq(t, `{"first":5,"count":2,"sent":3,"acknowledged":2,"failed":1,"stopped":1,"attempts":5,
		"reconnects":2,"longestOutage":1}`, out.String())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "a\nc\n", string(text))
	l, err = openLedger(file, devices{})
	require.NoError(t, err)
	l.settled("d", nil)
	require.NoError(t, l.close(io.Discard))
	text, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "a\nc\nd\n", string(text), "another run adds to the file")
	_, err = openLedger(filepath.Join(file, "none"), devices{})
	require.ErrorContains(t, err, "flag -ledger")
}

// A process that is killed leaves whole ids in its ledger.
func TestAKilledProcessLeavesWholeIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ledger")
	l, err := openLedger(file, devices{})
	require.NoError(t, err)
	for i := range 2000 {
		l.settled(fmt.Sprintf("fleet-%d-x-%d", i%7, i), nil)
		if i%100 != 0 {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.True(t, len(text) == 0 || text[len(text)-1] == '\n', "%d bytes", len(text))
	}
	require.NoError(t, l.close(io.Discard))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(text)), 2000)
}

// numberIn returns the number that the pattern finds in an engine's file.
func numberIn(t *testing.T, file []byte, pattern string) int {
	t.Helper()
	found := regexp.MustCompile(pattern).FindSubmatch(file)
	require.NotNil(t, found, pattern)
	n, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return n
}

// The command lines for Kubernetes and systemd are valid, each process takes its part, and the
// engine waits longer than a process needs to flush.
func TestEnginesGiveAValidCommandLine(t *testing.T) {
	manifest, err := os.ReadFile("kubernetes.yaml")
	require.NoError(t, err)
	var args []string
	require.NoError(t, json.Unmarshal(regexp.MustCompile(`(?s)args: (\[.*?\])\n`).FindSubmatch(manifest)[1], &args))
	unit, err := os.ReadFile("hubline-fleet@.service")
	require.NoError(t, err)
	line := regexp.MustCompile(`ExecStart=/usr/local/bin/fleet (.*)`).FindSubmatch(unit)[1]
	for _, args := range [][]string{args, strings.Fields(string(line))} {
		require.Greater(t, len(args), 5)
		require.Contains(t, args, "-ledger")
		require.NotContains(t, args, "-flush", "the grace period is compared with the default")
		out, err := command(t, "JOB_COMPLETION_INDEX=19", append(args, "-list")...).Output()
		require.NoError(t, err)
		var list struct{ Devices []struct{ ID string } }
		require.NoError(t, json.Unmarshal(out, &list))
		require.Len(t, list.Devices, 1000)
		require.Equal(t, "fleet-19999", list.Devices[999].ID)
		require.Error(t, command(t, "JOB_COMPLETION_INDEX=20", append(args, "-list")...).Run(), "one too many")
	}
	require.Equal(t, 20, numberIn(t, manifest, `\n  completions: (\d+)`))
	flush := int(defaultFlush.Seconds())
	require.Greater(t, numberIn(t, manifest, `terminationGracePeriodSeconds: (\d+)`), flush)
	require.Greater(t, numberIn(t, unit, `TimeoutStopSec=(\d+)`), flush)
	for _, asked := range []string{"runAsNonRoot: true", "type: RuntimeDefault", "allowPrivilegeEscalation: false",
		"drop: [ALL]"} {
		require.Contains(t, string(manifest), asked, "of the Pod Security Standard restricted")
	}
}

// A mistake in a name is found before anything else, also with -list.
func TestWrongNamesAreFoundFirst(t *testing.T) {
	for flag, want := range map[string]string{
		"-policy":    `flag -policy: "pigeon" is not a name of rules`,
		"-transport": `flag -transport: "pigeon" is not a transport`,
	} {
		out, err := command(t, "", "-list", "-count", "1", flag, "pigeon").CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 2, exit.ExitCode())
		require.Contains(t, string(out), want)
	}
}
