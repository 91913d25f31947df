package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

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
