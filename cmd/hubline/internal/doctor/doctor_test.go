package doctor

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
)

// patient is a device with something wrong.
type patient struct {
	t     *testing.T
	hub   *testbroker.Hub
	probe *Probe
	// dial reaches the network; tests wrap it.
	dial hubfixture.Dialer
}

// examine runs f in fake time with the device pump-1 of a new hub.
func examine(t *testing.T, o *testbroker.Options, f func(p *patient)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		f(newPatient(t, o))
	})
}

// newPatient returns the device pump-1 of a new hub.
func newPatient(t *testing.T, o *testbroker.Options) *patient {
	p := &patient{t: t, hub: hubfixture.Open(t, o, "pump-1")}
	p.dial = hubfixture.AtPorts(p.hub)
	p.use(target.Flags{}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
	return p
}

// use makes the probe for these flags and variables.
func (p *patient) use(f target.Flags, env map[string]string) {
	p.t.Helper()
	to, err := f.Resolve(&target.World{Getenv: func(name string) string { return env[name] }})
	require.NoError(p.t, err)
	if to.Network.TLS == nil {
		to.Network.TLS = p.hub.ClientTLS()
		to.Network.TLS.ServerName = ""
	}
	to.Network.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		return p.dial(ctx, network, address)
	}
	p.probe = &Probe{
		Target:  to,
		Options: Options{Timeout: 10 * time.Second, Hold: 5 * time.Second, Burst: 20},
		Lookup:  func(context.Context, string) ([]string, error) { return []string{"192.0.2.1"}, nil },
	}
}

// slow makes each connection take that much longer.
func (p *patient) slow(d time.Duration) {
	open := p.dial
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		time.Sleep(d)
		return open(ctx, network, address)
	}
}

// run returns the rows by their names.
func (p *patient) run() map[string]Row {
	p.t.Helper()
	rows := map[string]Row{}
	for _, r := range p.probe.Run(p.t.Context()) {
		require.NotContains(p.t, rows, r.Check, "each row has its name")
		require.NotEmpty(p.t, r.Figure, r.Check)
		require.NotEmpty(p.t, r.Hint, r.Check)
		rows[r.Check] = r
	}
	return rows
}

// marks returns the names of the rows with that mark.
func marks(rows map[string]Row, mark Mark) (all []string) {
	for name, r := range rows {
		if r.Mark == mark {
			all = append(all, name)
		}
	}
	return all
}

var hubTransports = []string{"mqtt", "mqtt-ws", "amqp", "amqp-ws", "http"}

func TestAHealthyDeviceIsGreen(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.Options.Idle = 10 * time.Minute
		rows := p.run()
		want := []string{"clock", "credentials", "proxy", "name", "portal", "port 8883", "port 5671", "port 443", "tls 8883",
			"tls 5671", "tls 443", "skew", "second device mqtt", "idle mqtt"}
		for _, name := range hubTransports {
			want = append(want, "connect "+name, "message "+name, "throttling "+name)
		}
		for _, name := range want {
			require.Equal(p.t, OK, rows[name].Mark, "%s: %+v", name, rows[name])
		}
		require.Len(p.t, rows, len(want))
		require.Len(p.t, p.hub.Messages(), len(hubTransports)*21+2)
	})
}

func TestNoMessagesMeansNone(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.Options.NoMessages = true
		p.probe.Options.Idle = time.Minute
		rows := p.run()
		require.Empty(p.t, marks(rows, Bad))
		require.Equal(p.t, OK, rows["second device mqtt"].Mark, "the twin was read")
		require.Equal(p.t, OK, rows["idle mqtt"].Mark, "the twin was read")
		require.Empty(p.t, p.hub.Messages())
	})
}

func TestABrokerIsExamined(t *testing.T) {
	for _, scheme := range []string{"mqtts", "mqtt"} {
		examine(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}}, func(p *patient) {
			port := map[string]string{"mqtts": ":8883", "mqtt": ":1883"}[scheme]
			url := p.hub.BrokerURL("pump-1", scheme, p.hub.HostName()+port)
			p.use(target.Flags{}, map[string]string{target.EnvBroker: url})
			rows := p.run()
			for _, name := range []string{"mqtt", "mqtt5"} {
				require.Equal(p.t, OK, rows["connect "+name].Mark, "%+v", rows)
				require.Equal(p.t, OK, rows["message "+name].Mark, "%+v", rows["message "+name])
			}
			if scheme == "mqtt" {
				require.Equal(p.t, Warn, rows["tls 1883"].Mark, "TLS is off")
			}
			require.NotContains(p.t, rows, "skew", "a broker tells no time")
		})
	}
}

// Without a network the first row that is red is the name; nothing behind it is green.
func TestNoNetwork(t *testing.T) {
	examine(t, nil, func(p *patient) {
		down := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("network is unreachable")}
		p.dial = func(context.Context, string, string) (net.Conn, error) { return nil, down }
		p.probe.Lookup = func(context.Context, string) ([]string, error) {
			return nil, &net.DNSError{Err: "no such host", Name: "hub", IsNotFound: true}
		}
		rows := p.run()
		require.Equal(p.t, []string{"name"}, marks(rows, Bad))
		require.ElementsMatch(p.t, []string{"clock", "credentials", "proxy"}, marks(rows, OK))
		require.Equal(p.t, "first: name", rows["port 8883"].Hint)
		require.Equal(p.t, Skipped, rows["connect http"].Mark)
	})
}

// The name for devices with TLS 1.3 is an additional one, which not every hub has.
func TestAnUnknownNameForDevicesLeadsToTheClassicOne(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.Target.Creds.Host = "hub.device.example.test"
		p.probe.Lookup = func(context.Context, string) ([]string, error) {
			return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
		}
		row := p.run()["name"]
		require.Equal(p.t, Bad, row.Mark)
		require.Contains(p.t, row.Hint, "is it hub.example.test?")
	})
}

func TestADeviceConnectsToTheNameForDevices(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.Target.Creds.Host = "hub.device.example.test"
		rows := p.run()
		require.Equal(p.t, OK, rows["tls 8883"].Mark, "%+v", rows["tls 8883"])
		require.Equal(p.t, OK, rows["connect amqp"].Mark, "%+v", rows["connect amqp"])
		require.Equal(p.t, OK, rows["connect http"].Mark, "%+v", rows["connect http"])
		require.Equal(p.t, OK, rows["connect mqtt"].Mark, "%+v", rows["connect mqtt"])
	})
}

// A name that is known does not help if no packet gets out.
func TestNoRoute(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.dial = func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		rows := p.run()
		require.ElementsMatch(p.t, []string{"port 8883", "port 5671", "port 443"}, marks(rows, Bad))
		require.Equal(p.t, "timed out", rows["port 8883"].Figure)
		require.NotContains(p.t, rows["port 443"].Hint, "443", "it is no way around itself")
		require.Equal(p.t, Skipped, rows["connect mqtt"].Mark)
	})
}

func TestAFirewallThatLeavesHTTPS(t *testing.T) {
	examine(t, nil, func(p *patient) {
		open := p.dial
		p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":443") {
				return open(ctx, network, address)
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}
		rows := p.run()
		require.ElementsMatch(p.t, []string{"port 8883", "port 5671"}, marks(rows, Bad))
		require.Contains(p.t, rows["port 8883"].Hint, "443")
		for name, mark := range map[string]Mark{"mqtt": Skipped, "amqp": Skipped, "mqtt-ws": OK,
			"amqp-ws": OK, "http": OK} {
			require.Equal(p.t, mark, rows["connect "+name].Mark, name)
		}
	})
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		answer []string
		mark   Mark
	}{
		{nil, Bad}, {[]string{"0.0.0.0"}, Warn}, {[]string{"192.0.2.1", "127.0.0.1"}, Warn}, {[]string{"::1"}, Warn},
		{[]string{"10.0.0.1"}, OK},
	} {
		examine(t, nil, func(p *patient) {
			p.probe.Lookup = func(context.Context, string) ([]string, error) { return c.answer, nil }
			require.Equal(p.t, c.mark, p.run()["name"].Mark, "%v", c.answer)
		})
	}
}
