package main

import (
	"context"
	"crypto/x509"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// newMQTTv5Shell has a hub of the profile mqttV5 with the device pump-x, and the flags to reach it.
func newMQTTv5Shell(t *testing.T) (s *shell, flags []string) {
	s = newShell(t, optionsFor("mqtt5"))
	s.tool = &tool{lookup: func(context.Context, string) ([]string, error) { return []string{"192.0.2.17"}, nil }}
	pair := testbroker.NewClientCert("pump-x", time.Time{}, time.Time{})
	_, err := s.hub.AddDeviceX509("pump-x", testbroker.Thumbprint(pair.Leaf))
	require.NoError(t, err)
	s.env[target.EnvConnect] = s.hub.ConnectionString("pump-x")
	cert, key := s.pair(pair)
	return s, []string{"-transport", "mqtt5", "-cert", cert, "-cert-key", key}
}

func TestADeviceAtAHubOfTheProfileMQTTv5(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) { // doctor watches connections
		s, flags := newMQTTv5Shell(t)
		run := func(args ...string) {
			t.Helper()
			s.out, s.log = buffer{}, buffer{}
			require.Equal(t, exitOK, s.run(append(args, flags...)...), s.log.String())
		}
		run("send", "-body", "x", "-topic", "site/{deviceId}/up")
		require.Equal(t, "site/pump-x/up", s.hub.Messages()[0].Topic)
		run("twin", "patch", `{"firmware":"1.2"}`)
		_, err := s.hub.PatchDesired("pump-x", `{"interval":60}`)
		require.NoError(t, err)
		run("twin", "get")
		require.Contains(t, s.out.String(), `"interval": 60`)
		require.Contains(t, s.out.String(), `"firmware": "1.2"`)
		run("twin", "watch", "-count", "1")
		require.Contains(t, s.out.String(), `"full":true`)

		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		done := make(chan int, 1)
		s.log = buffer{}
		go func() { // ends with interrupt
			done <- s.runIn(ctx, append([]string{"method", "serve", "-answer", `{"ok":true}`}, flags...)...)
		}()
		require.NoError(t, s.log.wait(soon(t), "connected"))
		answer, err := s.hub.CallMethod(soon(t), "pump-x", hubdata.MethodCall{Name: "reboot", Payload: []byte("1")})
		require.NoError(t, err)
		require.JSONEq(t, `{"ok":true}`, string(answer.Payload))
		interrupt()
		require.Equal(t, exitOK, <-done, s.log.String())

		run("simulate", "-count", "2", "-interval", "1ms")
		run("doctor", "-hold", "1s", "-idle", "1s", "-burst", "2")
		for _, row := range []string{"connect mqtt5", "message mqtt5", "second device mqtt5", "idle mqtt5"} {
			require.Contains(t, s.out.String(), row)
		}
		require.Contains(t, s.out.String(), " 0 bad, 0 not tried")
	})
}

// What a hub of the profile mqttV5 lacks is refused by name.
func TestCommandsThatAHubOfTheProfileMQTTv5Lacks(t *testing.T) {
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"listen":      {[]string{"listen"}, "cloud-to-device messages"},
		"upload":      {[]string{"upload", "provision.go"}, "a hub of the profile mqttV5 has no file uploads"},
		"a model":     {[]string{"send", "-body", "x", "-model-id", "dtmi:x:y;1"}, "-model-id"},
		"another way": {[]string{"send", "-body", "x", "-transport", "amqp"}, "unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			s, flags := newMQTTv5Shell(t)
			require.NotEqual(t, exitOK, s.run(append(flags, row.args...)...))
			require.Contains(t, s.log.String(), row.want)
			require.NotContains(t, s.log.String(), "; use another transport", "none has it")
		})
	}
	s, _ := newMQTTv5Shell(t)
	require.Equal(t, exitUsage, s.run("send", "-body", "x", "-transport", "mqtt5"))
	require.Contains(t, s.log.String(), "takes certificates alone: give -cert and -cert-key")
}

// A device that registers needs no flag for the profile: the service tells it. One with a key gets
// a certificate first.
func TestTheServiceTellsTheProfile(t *testing.T) {
	s, _ := newMQTTv5Shell(t)
	delete(s.env, target.EnvConnect)
	dps, err := testbroker.NewDPS(&testbroker.DPSOptions{Seed: 1, Polls: -1})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, dps.Close()) })
	require.NoError(t, dps.Link(s.hub))
	pair := testbroker.NewClientCert("pump-x", time.Time{}, time.Time{})
	_, err = dps.Enroll(dpsdata.Enrollment{ID: "pump-x", Certificates: []*x509.Certificate{pair.Leaf}})
	require.NoError(t, err)
	keyed, err := dps.Enroll(dpsdata.Enrollment{ID: "pump-k", Issue: testbroker.NewCertAuthority("root").Issuer(0)})
	require.NoError(t, err)
	toHub, toDPS := s.dial, hubfixture.AtPorts(dps)
	s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if strings.HasPrefix(address, dps.HostName()) {
			return toDPS(ctx, network, address)
		}
		return toHub(ctx, network, address)
	}
	register := []string{"-id-scope", dps.IDScope(), "-dps", dps.HostName(), "-registration-id"}
	run := func(want int, args ...string) {
		t.Helper()
		s.out, s.log = buffer{}, buffer{}
		require.Equal(t, want, s.run(args...), s.log.String())
	}

	cert, key := s.pair(pair)
	x := append(register[:len(register):len(register)], "pump-x", "-cert", cert, "-cert-key", key)
	run(exitOK, append(x, "send", "-body", "x")...)
	require.Contains(t, s.log.String(), "registered: pump-x at "+s.hub.HostName()+", a hub of the profile mqttV5")
	require.Equal(t, "ih/pump-x/srv/telemetry", s.hub.Messages()[0].Topic)
	run(exitOK, append(x, "provision")...)
	require.Contains(t, s.out.String(), `"connectionProfile": "mqttV5"`)
	run(exitOK, append(x, "doctor", "-hold", "0", "-burst", "0", "-no-messages")...)
	require.Contains(t, s.out.String(), "connect mqtt5 ")
	require.Contains(t, s.out.String(), "connect mqtt5-ws")
	run(exitUsage, append(x, "send", "-body", "x", "-transport", "amqp")...)
	require.Contains(t, s.log.String(), "amqp does not fit a hub of the profile mqttV5, which has mqtt5, mqtt5-ws")

	dps.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Status: 400})
	before := len(dps.Requests())
	run(exitOK, append(x, "provision")...)
	asked := dps.Requests()[before:]
	require.Equal(t, []string{"2026-11-02-preview", "2019-03-31"}, []string{asked[0].APIVersion, asked[1].APIVersion},
		"a service that does not know the preview is asked without it")

	folder := t.TempDir()
	issued, connection := filepath.Join(folder, "pump-k.pem"), filepath.Join(folder, "connection")
	k := append(register[:len(register):len(register)], "pump-k", "-key-file", s.file("key", keyed.PrimaryKey))
	run(exitUsage, append(k, "provision", "-save", connection)...)
	require.Contains(t, s.log.String(), "takes certificates only")
	require.NoFileExists(t, connection)
	run(exitOK, append(k, "provision", "-save", connection, "-issue", issued)...)
	run(exitOK, "send", "-body", "y", "-connect-file", connection, "-transport", "mqtt5", "-cert", issued, "-cert-key",
		issued)
	require.Equal(t, []string{"x", "y"}, s.bodies())
}

// A device that another one with its identity replaces says so, and what to do.
func TestADeviceThatIsReplacedSaysWhy(t *testing.T) {
	s, flags := newMQTTv5Shell(t)
	done := make(chan int, 1)
	go func() { done <- s.run(append([]string{"method", "serve"}, flags...)...) }() // ends with the take-over
	require.NoError(t, s.log.wait(soon(t), "connected"))
	other := newShell(t, optionsFor("mqtt5"))
	other.env, other.dial, other.hub = s.env, s.dial, s.hub
	require.Equal(t, exitOK, other.run(append([]string{"send", "-body", "x"}, flags...)...), other.log.String())
	require.NotEqual(t, exitOK, <-done)
	require.Contains(t, s.log.String(), "two devices with one identity")
	require.NotContains(t, s.log.String(), "the state must be read again")
}
