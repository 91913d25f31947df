package main

import (
	"bytes"
	"context"
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/doctor"
	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// newPatient is a shell with a resolver that knows each name.
func newPatient(t *testing.T) *shell {
	s := newShell(t, nil)
	s.tool = &tool{lookup: func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil }}
	return s
}

func TestDoctorPrintsATable(t *testing.T) {
	s := newPatient(t)
	require.Equal(t, exitOK, s.run("doctor", "-hold", "100ms"), s.out.String())
	require.Contains(t, s.out.String(), "ok    connect amqp-ws")
	require.Contains(t, s.out.String(), " 0 bad, 0 not tried\n")
}

// The exit status is that of the first row that is red.
func TestDoctorExitStatus(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		begin  string
		spoil  func(s *shell)
	}{
		"wrong key": {exitRefused, "connect mqtt", func(s *shell) {
			require.NoError(s.t, s.hub.SetKeys("pump-1", otherKey, otherKey))
		}},
		"no certificate": {exitUsage, "credentials", func(s *shell) {
			s.env[target.EnvConnect] = "HostName=" + s.hub.HostName() + ";DeviceId=pump-1;x509=true"
		}},
		"portal": {exitTrust, "tls 8883", func(s *shell) { require.NoError(s.t, s.hub.PresentName("portal.example")) }},
		"no hub": {exitNetwork, "port 8883", func(s *shell) { s.hub.Inject(fault.Fault{Kind: fault.Absent}) }},
		"busy hub": {exitLater, "connect mqtt", func(s *shell) {
			s.hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPatient(t)
			s.t = t
			c.spoil(s)
			require.Equal(t, c.status, s.run("doctor", "-hold", "100ms"), s.out.String())
			require.Contains(t, s.out.String(), "begin with: "+c.begin+"\n")
			require.Contains(t, s.out.String(), "BAD   "+c.begin)
		})
	}
}

func TestDoctorJSON(t *testing.T) {
	s := newPatient(t)
	require.NoError(t, s.hub.SetKeys("pump-1", otherKey, otherKey))
	require.Equal(t, exitRefused, s.run("doctor", "-json", "-transport", "mqtt"))
	var report struct {
		Rows   []struct{ Check, Mark, Figure, Hint string }
		Status int
	}
	require.NoError(t, json.Unmarshal([]byte(s.out.String()), &report))
	require.Equal(t, exitRefused, report.Status)
	require.Equal(t, "clock", report.Rows[0].Check)
	require.Equal(t, "ok", report.Rows[0].Mark)
	last := report.Rows[len(report.Rows)-2]
	require.Equal(t, "connect mqtt", last.Check)
	require.Equal(t, "BAD", last.Mark)
	require.NotEmpty(t, last.Hint)
	require.True(t, bytes.HasSuffix([]byte(s.out.String()), []byte("}\n")))
}

func TestDoctorLimits(t *testing.T) {
	for _, args := range [][]string{
		{"-timeout", "1ms"}, {"-hold", "-1s"}, {"-idle", "26m"}, {"-burst", "1001"}, {"-burst", "-1"},
	} {
		s := newPatient(t)
		require.Equal(t, exitUsage, s.run(append([]string{"doctor"}, args...)...))
		require.Contains(t, s.log.String(), args[0]+": ")
	}
}

func TestDoctorIsInterrupted(t *testing.T) {
	s := newPatient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, exitFailed, s.runIn(ctx, "doctor"))
	require.NotContains(t, s.out.String(), "connect")
}

// Programs get the rows so far.
func TestDoctorPrintsJSONWhenInterrupted(t *testing.T) {
	s := newPatient(t)
	ctx, interrupt := context.WithCancel(t.Context())
	s.tool.lookup = func(context.Context, string) ([]string, error) {
		interrupt()
		return nil, ctx.Err()
	}
	require.Equal(t, exitFailed, s.runIn(ctx, "doctor", "-json"))
	var report struct {
		Rows   []struct{ Check, Mark, Figure string }
		Status int
	}
	require.NoError(t, json.Unmarshal([]byte(s.out.String()), &report), s.out.String())
	require.Equal(t, exitFailed, report.Status)
	last := report.Rows[len(report.Rows)-1]
	require.Equal(t, "name", last.Check)
	require.Equal(t, "interrupted", last.Figure)
	require.Contains(t, s.log.String(), "interrupted after ")
}

// The page has each row of the terminal, without a key, also of a device that is refused.
func TestDoctorWritesAPage(t *testing.T) {
	s := newPatient(t)
	require.NoError(t, s.hub.SetKeys("pump-1", otherKey, otherKey))
	file := filepath.Join(t.TempDir(), "report.html")
	require.Equal(t, exitRefused, s.run("doctor", "-transport", "mqtt", "-html", file))
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	page := html.UnescapeString(string(raw))
	for line := range strings.Lines(s.out.String()) {
		if row := strings.Split(line, "  "); strings.HasPrefix(line, "ok") {
			require.Contains(t, page, "<td>"+strings.TrimSpace(row[2])+"</td>", line)
		}
	}
	require.Contains(t, page, `<td class="BAD">BAD</td><td>connect mqtt</td><td>unauthorized</td>`)
	require.Contains(t, page, "begin with: connect mqtt</strong>")
	require.Contains(t, page, "pump-1 at "+s.hub.HostName())
	_, key, _ := strings.Cut(s.env[target.EnvConnect], "SharedAccessKey=")
	require.NotContains(t, page, key)

	require.Equal(t, exitUsage, s.run("doctor", "-html", filepath.Join(file, "x")))
	require.Contains(t, s.log.String(), "-html: ")
	require.NotContains(t, s.log.String(), "doctor_test")
}

// A server chooses texts of the page, and none of them becomes a part of it.
func TestTheDoctorsPageEscapesTexts(t *testing.T) {
	evil := `"><script>alert(1)</script>` + "\x1b\u202e"
	page := (&report{device: evil, summary: evil, rows: []doctor.Row{{Check: evil, Figure: evil, Hint: evil}}}).html()
	require.NotContains(t, page, "<script")
	require.NotContains(t, page, "\x1b")
	require.NotContains(t, page, "\u202e")
	require.Equal(t, 6, strings.Count(page, "&lt;script&gt;"))
	require.NotContains(t, page, "://") // it loads nothing
}
