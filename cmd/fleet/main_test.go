package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func command(t *testing.T, args ...string) string {
	t.Helper()
	var out, log bytes.Buffer
	require.NoError(t, run(context.Background(), args, &out, &log))
	require.Empty(t, log.String(), "no progress without a terminal")
	return out.String()
}

func TestTheTableHasARowForEachOfTheRules(t *testing.T) {
	out := command(t, "-devices", "200", "-scenario", "restart,cells", "-rules", "default,Azure C")
	require.Equal(t, 2, strings.Count(out, "default "), out)
	require.Equal(t, 2, strings.Count(out, "Azure C "), out)
	require.Contains(t, out, "restart: 200 devices, hub with 100 connects/s and 100 messages/s")
	for _, c := range columns {
		require.Contains(t, out, c.title)
	}
}

// The devices are enough for three workers: each has blocks of 16,384 devices.
func TestTheResultDoesNotDependOnTheWorkers(t *testing.T) {
	args := []string{"-devices", "40000", "-rules", "recommended", "-json", "-", "-workers"}
	require.Equal(t, command(t, append(args, "1")...), command(t, append(args, "3")...))
}

// Repeated faults and expiring tokens alone have no end to count from; a start has its beginning,
// and nothing before it.
func TestTimesWithoutAReferenceAreNotPrinted(t *testing.T) {
	for _, c := range []struct {
		scenario     string
		none, steady bool
	}{
		{"tokens", true, false}, {"cells", true, true}, {"restart", false, true}, {"provisioning", false, false},
	} {
		var families []family
		args := []string{"-devices", "200", "-scenario", c.scenario, "-rules", "default"}
		require.NoError(t, json.Unmarshal([]byte(command(t, append(args, "-json", "-")...)), &families))
		f := &families[0]
		for i, cell := range f.row(f.Results[0]) {
			switch columns[i].title {
			case "50 % back", "99 % back", "all back", "peak/s after":
				require.Equal(t, c.none, cell == "-", "%s, %s: %s", c.scenario, columns[i].title, cell)
			case "steady/s":
				require.Equal(t, c.steady, cell != "-", "%s: %s", c.scenario, cell)
			default:
				require.NotEqual(t, "-", cell)
			}
		}
	}
}

func TestJSONHasTheResults(t *testing.T) {
	var families []family
	out := command(t, "-devices", "100", "-rules", "default", "-json", "-")
	require.NoError(t, json.Unmarshal([]byte(out), &families))
	require.Equal(t, 100, families[0].Results[0].Devices.Connected)
	require.Equal(t, 100, families[0].Scenario.Devices)
	require.EqualValues(t, 100, families[0].Scenario.Hub.Messages, "a default")
	require.Equal(t, 50*time.Millisecond, families[0].Scenario.Hub.RTT, "a default")
	require.Equal(t, families[0].Scenario.WithDefaults(), families[0].Scenario)
	require.NotEmpty(t, families[0].Results[0].Series.Attempts)
}

// The report is one file: well-formed plots, and nothing is loaded from elsewhere.
func TestTheReportIsOneFile(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "report.html")
	command(t, "-devices", "100", "-rules", "default,recommended", "-o", file, "-svg", folder)
	report, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, len(pictures), bytes.Count(report, []byte("<svg")))
	for _, reference := range []string{"<script", "<link", "<img", "src=", "@import", "url("} {
		require.NotContains(t, string(report), reference)
	}
	for _, p := range pictures {
		svg, err := os.ReadFile(filepath.Join(folder, "restart-"+p.name+".svg"))
		require.NoError(t, err)
		d := xml.NewDecoder(bytes.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, p.name)
		}
		require.Contains(t, string(svg), p.title)
	}
}

// A name in a scenario's file cannot put markup into the report.
func TestANameIsNotMarkup(t *testing.T) {
	folder := t.TempDir()
	file, report := filepath.Join(folder, "own.json"), filepath.Join(folder, "report.html")
	require.NoError(t, os.WriteFile(file, []byte(`{"Name":"<script>a/b","Devices":10,"Duration":"1m"}`), 0o600))
	command(t, "-file", file, "-rules", "default", "-o", report)
	text, err := os.ReadFile(report)
	require.NoError(t, err)
	require.NotContains(t, string(text), "<script>")
	require.Contains(t, string(text), "&lt;script&gt;")
}

func TestBadInputIsNamed(t *testing.T) {
	folder := t.TempDir()
	bad := filepath.Join(folder, "bad.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"Devices":10,"Gatway":3}`), 0o600))
	twice := filepath.Join(folder, "twice.json")
	require.NoError(t, os.WriteFile(twice, []byte(`{"Devices":10}{"Devices":20}`), 0o600))
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{2, `there is no "nowhere"`, []string{"-scenario", "nowhere"}},
		{2, `there is no "hope"`, []string{"-rules", "hope"}},
		{2, `-scenario: " restart" is there twice`, []string{"-scenario", "restart, restart"}},
		{2, "-devices is 0; give at least 1", []string{"-devices", "0"}},
		{2, "-workers is -1; give 0 to 1024", []string{"-workers", "-1"}},
		{2, "-workers is 1025; give 0 to 1024", []string{"-workers", "1025"}},
		{2, "Scenario.Devices is 5000000", []string{"-devices", "5000000"}},
		{2, "field Gatway: there is no such field", []string{"-file", bad}},
		{2, "after top-level value; give one fleet.Scenario", []string{"-file", twice}},
		{2, "unexpected argument", []string{"restart"}},
		{2, "flag -seeed: there is none; the nearest is -seed, and -h lists them all", []string{"-seeed", "1"}},
		{2, "flag -nonsense: there is none; -h lists them all", []string{"-nonsense"}},
		{2, "-devices contradicts -file; leave it out", []string{"-devices", "5", "-file", bad}},
		{2, "-scenario contradicts -file; leave", []string{"-scenario", "day", "-file", bad}},
		{2, "-recorded-at needs -recorded", []string{"-recorded-at", "1m"}},
		{2, "-file and -json name the same file ./x.json; give two", []string{"-file", "x.json", "-json", "./x.json"}},
		{2, "-o and -json name the same file", []string{"-json", filepath.Join(folder, "report.html")}},
		{2, `-policy: there is no policy "hope"; give one of azure, `, []string{"-policy", "hope"}},
		{2, "-policy: policy azure: cmax=1 is not a duration", []string{"-policy", "azure:cmax=1"}},
		{2, `-paced: policy fixed: "x=1" is not one of its parameters`, []string{"-paced", "fixed:x=1"}},
		{2, "-dial-gap needs -dials", []string{"-dial-gap", "1s"}},
		{2, "Rules.DialTimeout is 1ns; give ", []string{"-dial-timeout", "1ns"}},
		{2, "Rules.RenewAt is 2; give ", []string{"-renew-at", "2"}},
		{1, "no such file", []string{"-file", filepath.Join(folder, "none")}},
	} {
		report := filepath.Join(folder, "report.html")
		err := run(context.Background(), append([]string{"-o", report}, c.args...), io.Discard, io.Discard)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.status, status(err), c.want)
		require.NoFileExists(t, report, "%s: a mistake is found before outputs are opened", c.want)
	}
	require.ErrorIs(t, run(context.Background(), []string{"-help"}, io.Discard, io.Discard), flag.ErrHelp)
}

// Files of Windows begin with a byte order mark.
func TestAByteOrderMarkIsLeftOut(t *testing.T) {
	scenario, attempts := filepath.Join(t.TempDir(), "own.json"), filepath.Join(t.TempDir(), "attempts.csv")
	require.NoError(t, os.WriteFile(scenario, []byte("\ufeff"+`{"Devices":10,"Duration":"1m"}`), 0o600))
	require.NoError(t, os.WriteFile(attempts, []byte("\ufeff0,1\r\n10,5\r\n"), 0o600))
	require.Contains(t, command(t, "-file", scenario, "-rules", "default", "-recorded", attempts), "distance")
}

// A name reaches terminals, SVG and file names: it is text, and not much.
func TestABadNameIsRefused(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{`\u0000`, `a\u001b[2Jb`, `a\nb`, `\u202eb`, "\xff", strings.Repeat("a", 101)} {
		file := filepath.Join(folder, "own.json")
		require.NoError(t, os.WriteFile(file, []byte(`{"Devices":10,"Name":"`+name+`"}`), 0o600))
		err := run(t.Context(), []string{"-file", file}, io.Discard, io.Discard)
		require.ErrorContains(t, err, "the scenario's Name is too long or has control characters; give ", name)
		require.Equal(t, 2, status(err))
	}
	for _, name := range []string{"süd 3 — <b>", strings.Repeat("a", 100)} {
		require.NoError(t, checkName(name))
	}
}

// The sample of the documentation runs, and its rows are those of its devices.
func TestTheSampleOfTheDocumentationRuns(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "fleet-simulator.md"))
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "```json\n{\n  \"Name\": ")
	require.True(t, found)
	sample, _, _ := strings.Cut(after, "```")
	file := filepath.Join(t.TempDir(), "scenario.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"Name": `+sample), 0o600))
	s, err := readScenario(file)
	require.NoError(t, err)
	require.Len(t, s.Faults, 2)
	out := command(t, "-file", file, "-rules", "recommended")
	require.Contains(t, out, s.Name+": 20,000 devices, hub with 144 connects/s")
}

func TestTheListNamesEverything(t *testing.T) {
	out := command(t, "-list")
	for _, name := range []string{"restart", "outage", "throttled", "cells", "tokens", "provisioning", "gateways", "day",
		"default", "adaptive", "breaker", "Azure Java", "recommended", "none", "fixed delay=1s,jitter=0.2"} {
		require.Contains(t, out, "  "+name+"\n")
	}
}

// The bar fits into a line of a terminal with 80 columns: a longer one would leave parts of itself.
func TestTheProgressFitsIntoALine(t *testing.T) {
	var out bytes.Buffer
	p := &progress{out: &out, title: "outage-refused of a fleet with a long name, recommended", tenth: -1}
	for n := range 101 {
		p.show(time.Duration(n)*time.Minute, 100*time.Minute)
	}
	shown := strings.Split(out.String(), "\r")[1:]
	require.Len(t, shown, 101)
	for _, line := range shown {
		require.Len(t, line, lineWidth)
	}
	require.Less(t, lineWidth, 80)
	require.True(t, strings.HasSuffix(shown[100], "] 100.0 %"), shown[100])
	out.Reset()
	p.clear()
	require.Equal(t, "\r"+strings.Repeat(" ", lineWidth)+"\r", out.String())
}

// A list that cannot be written is an error.
func TestAListThatIsNotWritten(t *testing.T) {
	full := errors.New("no space left")
	require.ErrorIs(t, run(context.Background(), []string{"-list"}, &hook{after: func(string) error { return full }},
		io.Discard), full)
}

// The plots of the documentation are what the command draws. HUBLINE_FLEET_PLOTS=1 draws those of a
// million devices, too, which takes some minutes.
func TestThePlotsAreCurrent(t *testing.T) {
	most := 10_000
	if os.Getenv("HUBLINE_FLEET_PLOTS") != "" {
		most = math.MaxInt
	}
	folder := t.TempDir()
	require.NoError(t, drawDocs(context.Background(), folder, most))
	for _, d := range docsPlots {
		if d.devices > most {
			continue
		}
		drawn, err := os.ReadFile(filepath.Join(folder, d.file))
		require.NoError(t, err)
		kept, err := os.ReadFile(filepath.Join("..", "..", "docs", d.file))
		require.NoError(t, err)
		require.True(t, bytes.Equal(drawn, kept), "%s is not current: run go run ./cmd/fleet -docs docs", d.file)
	}
}
