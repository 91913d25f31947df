package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/fleet"
)

// export writes the attempts that reached the hub of a simulated fleet, as those of a real one come
// out of a hub's records: rates of intervals of ten seconds, from a moment before the fault on.
func export(t *testing.T, file string, s fleet.Scenario, rules fleet.Rules, seed uint64) {
	t.Helper()
	r, err := fleet.Run(context.Background(), s, rules, &fleet.Options{Seed: seed})
	require.NoError(t, err)
	var text strings.Builder
	text.WriteString("TimeGenerated [UTC],attempts\n")
	began := time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)
	until := cumulated(r)
	for at := 4 * time.Minute; at < r.Duration; at += 10 * time.Second {
		n := until(at+10*time.Second) - until(at)
		fmt.Fprintf(&text, "%s,%g\n", began.Add(at).Format(time.RFC3339), n/10)
	}
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
}

// The distance finds the rules that a fleet has: none from the same run, little from another seed,
// and much from other rules or another time.
func TestTheDistanceFindsTheRulesOfAFleet(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "attempts.csv")
	s := fleet.HubRestart(2000)
	s.Hub.Connects = 40
	scenario := filepath.Join(folder, "scenario.json")
	text, err := json.Marshal(s)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(scenario, text, 0o600))
	distances := func(seed uint64, args ...string) []float64 {
		export(t, file, s, fleet.Rules{ReconnectSpread: time.Minute}, seed)
		out := command(t, append([]string{"-file", scenario, "-rules", "spread 1 min,default,fixed 10 s", "-json", "-",
			"-recorded", file}, args...)...)
		var families []family
		require.NoError(t, json.Unmarshal([]byte(out), &families))
		return families[0].Distances
	}
	same := distances(1, "-recorded-at", "4m")
	t.Log("the same seed:", same)
	require.Less(t, same[0], 1e-9)
	require.Greater(t, same[1], .2)
	require.Greater(t, same[2], .2)
	other := distances(2, "-recorded-at", "4m")
	t.Log("another seed:", other)
	require.Greater(t, other[0], .001)
	require.Less(t, other[0], .15)
	require.Greater(t, other[1], .2)
	require.Greater(t, distances(1, "-recorded-at", "0s")[0], .5, "the curve is four minutes early")
}

func TestARealFleetIsInTableAndReport(t *testing.T) {
	folder := t.TempDir()
	file, report := filepath.Join(folder, "attempts.csv"), filepath.Join(folder, "report.html")
	export(t, file, fleet.HubRestart(200), fleet.Recommended(200), 1)
	out := command(t, "-devices", "200", "-rules", "recommended", "-recorded", file, "-recorded-at", "4m", "-o", report)
	require.Contains(t, out, "distance")
	require.Contains(t, out, "0.0 %")
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.Contains(t, string(text), "real fleet")
	require.Contains(t, string(text), "<th>distance</th>")
	require.Equal(t, len(pictures)+1, strings.Count(string(text), "<svg"))
}

// The distance counts the attempts without a counterpart, in the time that both curves have. A
// hub's records have no registrations.
func TestDistance(t *testing.T) {
	r := &fleet.Result{Resolution: time.Second, Duration: 4 * time.Second, Series: fleet.Series{
		Attempts: []int64{9, 9, 9, 9}, Accepted: []int64{5, 0, 2, 2}, Rejected: []int64{0, 4, 0, 1},
		Registrations: []int64{1, 0, 0, 3},
	}}
	for _, c := range []struct {
		text  string
		first time.Duration
		want  float64
	}{
		{"0,4\n1,4\n2,2\n3,0\n", 0, 0},
		{"0,4\n2,1\n", 0, 0},
		{"0,0\n2,0\n", 0, 1},
		{"0,3\n2,1\n", 0, 2. / 18},
		{"10,2\n12,100\n", 2 * time.Second, 2. / 6},
		{"0,100\n2,4\n4,1\n", -2 * time.Second, 0},
		{"0.5,4\n1,4\n", 500 * time.Millisecond, 0},
	} {
		got, err := parseRecorded([]byte(c.text), c.first)
		require.NoError(t, err)
		require.InDelta(t, c.want, got.distance(r), 1e-9, c.text)
	}
	empty, err := parseRecorded([]byte("0,0\n1,0\n"), 3*time.Second)
	require.NoError(t, err)
	require.Zero(t, empty.distance(r), "neither has an attempt")
}

func TestBadRowsAreNamed(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "fewer than two rows"},
		{"time,attempts\n", "fewer than two rows"},
		{"time,attempts\n0,1\n", "fewer than two rows"},
		{"06.05.2030 07:08,1\n0,1\n1,1\n", `row 1: "06.05.2030 07:08" is no time`},
		{"0,many\n0,1\n1,1\n", `row 1: "many" is no rate`},
		{"0,1\nlater,1\n", `row 2: "later" is no time`},
		{"0,1\nNaN,1\n", `row 2: "NaN" is no time`},
		{"0,1\n1,\n", `row 2: "" is no rate`},
		{"0,1\n1,NaN\n", `row 2: "NaN" is no rate`},
		{"0,1\n1,-1\n", `row 2: "-1" is no rate`},
		{"0,1\n1,2e9\n", `row 2: "2e9" is no rate`},
		{"5,1\n4,1\n", "row 2: 4 is not within 7 days after the first row"},
		{"5,1\n1e6,1\n", "row 2: 1e6 is not within 7 days after the first row"},
		{"5,1\n5,1\n", "row 2: 5 is not after the row before"},
		{"0,1\n1,1,1\n", "wrong number of fields"},
	} {
		_, err := parseRecorded([]byte(c.text), 0)
		require.ErrorContains(t, err, c.want, c.text)
	}
	file := filepath.Join(t.TempDir(), "attempts.csv")
	require.NoError(t, os.WriteFile(file, []byte("0,1\n1,1\n"), 0o600))
	err := run(context.Background(), []string{"-devices", "10", "-recorded", file, "-recorded-at", "2h"}, nil, nil)
	require.ErrorContains(t, err, "give another -recorded-at")
}

// Whatever the file has: an error, or rows in order whose distance is a share.
func FuzzParseRecorded(f *testing.F) {
	for _, seed := range []string{
		"0,1\n1,2\n", "time,rate\n2030-01-01T00:00:00Z,1\n2030-01-01T00:00:10.5Z,0.25\n", "\"0\",1e9\n9,9\n",
		"1e300,1\n1e301,1\n", "-5,1\n0x1p3,2\n",
	} {
		f.Add([]byte(seed), int64(0))
	}
	r := &fleet.Result{Resolution: time.Second, Duration: 4 * time.Second, Series: fleet.Series{
		Accepted: []int64{4, 0, 2, 0}, Rejected: []int64{0, 4, 0, 0}, Registrations: make([]int64, 4),
	}}
	f.Fuzz(func(t *testing.T, text []byte, first int64) {
		first %= int64(maxTime)
		c, err := parseRecorded(text, time.Duration(first))
		if err != nil {
			return
		}
		for i := 1; i < len(c.rows); i++ {
			require.Greater(t, c.rows[i].at, c.rows[i-1].at)
		}
		require.Greater(t, c.end, c.rows[len(c.rows)-1].at)
		d := c.distance(r)
		require.True(t, d >= 0 && d <= 1, "distance %g", d)
		for _, xy := range c.curve(0, r.Duration) {
			require.True(t, xy.X >= 0 && xy.X <= r.Duration.Minutes() && xy.Y >= 1 && xy.Y <= maxRate, "%v", xy)
		}
	})
}
