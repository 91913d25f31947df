package main

import (
	"context"
	"crypto/md5"
	"crypto/x509"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/policies"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func TestUpload(t *testing.T) {
	s := newShell(t, nil)
	text := strings.Repeat("0123456789", 300_000)
	require.Equal(t, exitOK, s.run("upload", s.file("log.txt", text)), s.log.String())
	require.Equal(t, "pump-1/log.txt\n", s.out.String())
	require.Contains(t, s.log.String(), "3000000 bytes in ")
	require.Contains(t, s.log.String(), fmt.Sprintf("MD5 %x", md5.Sum([]byte(text))))
	blob, ok := s.hub.Blob("pump-1/log.txt")
	require.True(t, ok)
	require.NoError(t, blob.Matches(strings.NewReader(text)))

	s.in = strings.NewReader("piped")
	require.Equal(t, exitOK, s.run("upload", "-", "-name", "a/b"), s.log.String())
	blob, ok = s.hub.Blob("pump-1/a/b")
	require.True(t, ok)
	require.NoError(t, blob.Matches(strings.NewReader("piped")))
	require.Equal(t, exitUsage, s.run("upload", "-"))
	require.Equal(t, exitUsage, s.run("upload", "/nowhere/at/all"))
	require.Equal(t, exitUsage, s.run("upload"))
}

// A registration by each proof of identity is printed, and its connection string works.
func TestProvision(t *testing.T) {
	s := newShell(t, &testbroker.Options{Seed: 1})
	dps, err := testbroker.NewDPS(&testbroker.DPSOptions{Seed: 1, Polls: -1})
	require.NoError(t, err)
	defer dps.Close()
	require.NoError(t, dps.Link(s.hub))
	toHub, toDPS := s.dial, hubfixture.AtPorts(dps)
	s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, dps.HostName()) {
			return toDPS(ctx, network, address)
		}
		return toHub(ctx, network, address)
	}
	single, err := dps.Enroll(dpsdata.Enrollment{ID: "pump-2"})
	require.NoError(t, err)
	group, err := dps.Enroll(dpsdata.Enrollment{ID: "line-1", Group: true})
	require.NoError(t, err)
	delete(s.env, target.EnvConnect)
	pair := testbroker.NewClientCert("pump-4", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	_, err = dps.Enroll(dpsdata.Enrollment{ID: "pump-4", Certificates: []*x509.Certificate{pair.Leaf}})
	require.NoError(t, err)
	cert, certKey := s.pair(pair)
	for name, args := range map[string][]string{
		"pump-4": {"-registration-id", "pump-4", "-cert", cert, "-cert-key", certKey},
		"pump-2": {"-registration-id", "pump-2", "-key-file", s.file("key", single.PrimaryKey+"\n")},
		"pump-3": {"-registration-id", "pump-3", "-group-key-file", s.file("group", group.PrimaryKey)},
	} {
		saved := t.TempDir() + "/connection"
		args = append(args, "-id-scope", dps.IDScope(), "-dps", dps.HostName())
		require.Equal(t, exitOK, s.run(append([]string{"provision", "-save", saved}, args...)...), s.log.String())
		require.Contains(t, s.out.String(), `"deviceId": "`+name+`"`)
		info, err := os.Stat(saved)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		send := []string{"send", "-body", "from " + name, "-connect-file", saved}
		if name == "pump-4" {
			send = append(send, "-cert", cert, "-cert-key", certKey)
		}
		require.Equal(t, exitOK, s.run(send...), s.log.String())
		require.Contains(t, s.bodies(), "from "+name)
		require.Equal(t, exitOK, s.run(append([]string{"send", "-body", "registered " + name}, args...)...), s.log.String())
		require.Contains(t, s.bodies(), "registered "+name)
		require.Equal(t, exitUsage, s.run(append([]string{"provision", "-save", saved}, args...)...), "it exists")
	}
	require.NotContains(t, s.out.String()+s.log.String(), group.PrimaryKey)
	require.NotContains(t, s.out.String()+s.log.String(), single.PrimaryKey)
	require.Equal(t, exitRefused, s.run("provision", "-id-scope", dps.IDScope(), "-dps", dps.HostName(),
		"-registration-id", "pump-2", "-key-file", s.file("key", otherKey)), s.log.String())
	require.Equal(t, exitUsage, s.run("provision"))
}

// A file that cannot be kept is found before anything is registered, and none is left without a
// connection string.
func TestProvisionMakesTheFileFirst(t *testing.T) {
	s := newShell(t, nil)
	delete(s.env, target.EnvConnect)
	dials := 0
	s.dial = func(context.Context, string, string) (net.Conn, error) {
		dials++
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	args := []string{"provision", "-id-scope", "0ne", "-registration-id", "pump-1", "-key-file", s.file("key", otherKey),
		"-policy", "none", "-save"}
	old := s.file("connection", "old")
	require.Equal(t, exitUsage, s.run(append(args, old)...), s.log.String())
	require.Zero(t, dials, "nothing was tried")
	require.FileExists(t, old)
	fresh := t.TempDir() + "/connection"
	require.Equal(t, exitNetwork, s.run(append(args, fresh)...), s.log.String())
	require.NotZero(t, dials)
	require.NoFileExists(t, fresh)
}

func TestSimulate(t *testing.T) {
	for _, name := range []string{"mqtt", "http"} {
		s := newShell(t, nil)
		require.Equal(t, exitOK, s.run("simulate", "-count", "3", "-interval", "1ms", "-transport", name), s.log.String())
		require.Len(t, s.bodies(), 3)
		require.Equal(t, `{"n":1,"celsius":20.7,"humidity":55.0}`, s.bodies()[0], "the seed decides")
	}
}

// Refused messages have an exit status, as those of send have.
func TestTheSimulatedDeviceIsRefused(t *testing.T) {
	s := newShell(t, nil)
	s.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{413}, Times: -1, Route: fault.RouteTelemetry})
	require.NotEqual(t, exitOK, s.run("simulate", "-count", "2", "-interval", "1ms", "-transport", "http",
		"-telemetry-only"), s.log.String())
	require.Contains(t, s.log.String(), "0 acknowledged, 2 failed")
}

func TestTheSimulatedDeviceAnswers(t *testing.T) {
	s := newShell(t, nil)
	_, err := s.hub.PatchDesired("pump-1", `{"interval":60}`)
	require.NoError(t, err)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan int, 1)
	go func() { done <- s.runIn(ctx, "simulate", "-interval", "1h") }() // ends with interrupt
	require.NoError(t, s.hub.WaitReported(soon(t), "pump-1", func(twin hubdata.Twin) bool {
		return string(twin.Reported) == `{"interval":60}`
	}))
	answer, err := s.hub.CallMethod(soon(t), "pump-1", hubdata.MethodCall{Name: "reboot"})
	require.NoError(t, err)
	require.Equal(t, 200, answer.Status)
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("hello")}))
	require.NoError(t, s.hub.WaitC2D(soon(t), "pump-1", hubdata.C2DCompleted, 1))
	interrupt()
	require.Equal(t, exitOK, <-done, s.log.String())
	require.Contains(t, s.log.String(), "message: hello")
}

// The messages, the answers and the report of a simulated device can be chosen.
func TestTheSimulatedDeviceIsAsTold(t *testing.T) {
	s := newShell(t, nil)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	done := make(chan int, 1)
	go func() { // ends with interrupt
		done <- s.runIn(ctx, "simulate", "-interval", "1h", "-transport", "amqp", "-body", `{"level":7}`, "-property",
			"site=roof", "-settle", "reject", "-report", `{"firmware":"1.2"}`, "-method-status", "409", "-method-answer",
			`{"error":"busy"}`, "-model-id", "dtmi:com:example:Tank;1")
	}()
	require.NoError(t, s.hub.WaitReported(soon(t), "pump-1", func(twin hubdata.Twin) bool {
		return string(twin.Reported) == `{"firmware":"1.2"}`
	}))
	require.NoError(t, s.hub.SendC2D("pump-1", hubdata.C2D{Body: []byte("hello")}))
	require.NoError(t, s.hub.WaitC2D(soon(t), "pump-1", hubdata.C2DRejected, 1))
	answer, err := s.hub.CallMethod(soon(t), "pump-1", hubdata.MethodCall{Name: "fill"})
	require.NoError(t, err)
	require.Equal(t, 409, answer.Status)
	require.JSONEq(t, `{"error":"busy"}`, string(answer.Payload))
	require.NoError(t, s.hub.WaitMessages(soon(t), 1))
	interrupt()
	require.Equal(t, exitOK, <-done, s.log.String())
	m := s.hub.Messages()[0]
	require.Equal(t, `{"level":7}`, string(m.Body))
	require.Equal(t, []hubdata.Property{{Name: "site", Value: "roof"}}, m.Properties)
	twin, err := s.hub.Twin("pump-1")
	require.NoError(t, err)
	require.Equal(t, "dtmi:com:example:Tank;1", twin.ModelID)
	require.Equal(t, exitUsage, s.run("simulate", "-count", "1", "-report", "{}", "-transport", "http"))
	require.Contains(t, s.log.String(), "has no twin")
}

func TestPolicyPrintsDelays(t *testing.T) {
	s := newShell(t, nil)
	require.Equal(t, exitOK, s.run("policy", "azure", "-retries", "3", "-plot"), s.log.String())
	require.Equal(t, `retry  shortest  middle  longest  
1      100ms     100ms   100ms    ============
2      150ms     163ms   175ms    ==================----
3      250ms     288ms   325ms    ===============================---------
`, s.out.String())
	s.out = buffer{}
	require.Equal(t, exitOK, s.run("policy", "fixed:attempts=2,jitter=0"))
	require.Contains(t, s.out.String(), "1      1s")
	require.Contains(t, s.out.String(), "2      none: ")
	require.Equal(t, exitUsage, s.run("policy", "hope"))
	require.Equal(t, exitUsage, s.run("policy", "azure", "-retries", "0"))
}

// Each policy has a table and a well-formed drawing.
func TestPolicyDraws(t *testing.T) {
	file := t.TempDir() + "/policy.svg"
	for _, p := range policies.All {
		s := newShell(t, nil)
		require.Equal(t, exitOK, s.run("policy", p.Name, "-svg", file), s.log.String())
		svg, err := os.ReadFile(file)
		require.NoError(t, err)
		decoder := xml.NewDecoder(strings.NewReader(string(svg)))
		for err == nil {
			_, err = decoder.Token()
		}
		require.Equal(t, io.EOF, err, p.Name)
	}
	delays := series(retrypolicy.Backoff{Base: time.Second, Jitter: retrypolicy.JitterFull}, 2)
	require.Equal(t, time.Duration(0), delays[1].low)
	require.Equal(t, time.Second, delays[1].middle)
	delays = series(retrypolicy.Backoff{Base: time.Second, Max: time.Hour, Jitter: retrypolicy.JitterDecorrelated}, 2)
	require.Greater(t, delays[1].high, 2*delays[0].high, "each delay follows from the one before")
}
