package doctor

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// overMQTT limits the examination to one transport.
func (p *patient) overMQTT() {
	p.t.Helper()
	p.use(target.Flags{Transport: "mqtt"}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
}

func TestASecondDeviceIsFound(t *testing.T) {
	examine(t, nil, func(p *patient) {
		creds, err := device.ParseConnectionString(p.hub.ConnectionString("pump-1"))
		require.NoError(p.t, err)
		other, err := device.New(creds, mqtt.New(&mqtt.Options{Network: p.probe.Target.Network}), nil)
		require.NoError(p.t, err)
		p.overMQTT()
		time.AfterFunc(time.Second, func() { _ = other.Start() }) // the connection is watched then
		row := p.run()["second device mqtt"]
		require.Equal(p.t, Bad, row.Mark, "%+v", row)
		require.Equal(p.t, transport.Conflict, row.Kind)
		require.Contains(p.t, row.Hint, "same device id")
		require.NoError(p.t, other.Close())
	})
}

// watched is the first connection that the row second device watches: those before it are of the
// rows port, tls, skew and connect.
const watched = 5

// wrapNth wraps the nth connection.
func (p *patient) wrapNth(nth int, wrap func(net.Conn) net.Conn) {
	open, n := p.dial, 0
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := open(ctx, network, address)
		if n++; err == nil && n == nth+1 { // the first is that of the row portal
			conn = wrap(conn)
		}
		return conn, err
	}
}

// cutLater cuts a connection after a second.
func cutLater(conn net.Conn) net.Conn {
	time.AfterFunc(time.Second, func() { _ = conn.Close() })
	return conn
}

// One loss may be the network's, and is no proof of a second device.
func TestASingleLossIsAWarning(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.overMQTT()
		p.wrapNth(watched, cutLater)
		row := p.run()["second device mqtt"]
		require.Equal(p.t, Warn, row.Mark, "%+v", row)
		require.Equal(p.t, "lost after 1s, then kept for 5s", row.Figure)
		require.Contains(p.t, row.Hint, "-hold")
	})
}

// After a loss the next attempt may fail for another reason, which is the row's.
func TestALossAndThenNoConnection(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.overMQTT()
		p.wrapNth(watched, func(conn net.Conn) net.Conn {
			require.NoError(p.t, p.hub.SetKeys("pump-1", otherKey, otherKey))
			return cutLater(conn)
		})
		row := p.run()["second device mqtt"]
		require.Equal(p.t, Bad, row.Mark, "%+v", row)
		require.Equal(p.t, transport.Unauthorized, row.Kind)
		require.Contains(p.t, row.Figure, "unauthorized")
	})
}

// A quiet connection that nobody closed is not green before something went through it.
func TestADeadConnectionIsNotGreen(t *testing.T) {
	for _, noMessages := range []bool{false, true} {
		examine(t, nil, func(p *patient) {
			p.overMQTT()
			p.probe.Options.NoMessages = noMessages
			p.wrapNth(watched, func(conn net.Conn) net.Conn {
				return &forgotten{Conn: conn, last: time.Now(), after: 4 * time.Second}
			})
			row := p.run()["second device mqtt"]
			require.Equal(p.t, Bad, row.Mark, "%+v", row)
			require.Equal(p.t, transport.Timeout, row.Kind, "%+v", row)
			require.Equal(p.t, "dead after 5s", row.Figure)
		})
	}
}

// A message that is refused shows that the connection lives. The row has the reason.
func TestARefusalIsNoDeadConnection(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.use(target.Flags{Transport: "amqp"}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
		p.hub.Inject(fault.Fault{Kind: fault.Quota, Limit: 21, AcceptConnects: true})
		row := p.run()["second device amqp"]
		require.Equal(p.t, Bad, row.Mark, "%+v", row)
		require.Equal(p.t, transport.Quota, row.Kind, "%+v", row)
		require.Equal(p.t, "kept for 5s, then quota exceeded", row.Figure)
		require.NotContains(p.t, row.Hint, "box on the way")
	})
}

// A broker has no twin, so nothing shows that a connection without messages still works.
func TestABrokerWithoutMessagesIsNotGreen(t *testing.T) {
	examine(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}}, func(p *patient) {
		p.use(target.Flags{Transport: "mqtt"}, map[string]string{
			target.EnvBroker: p.hub.BrokerURL("pump-1", "mqtts", "localhost:8883")})
		p.probe.Options.NoMessages = true
		p.probe.Options.Idle = time.Minute
		rows := p.run()
		require.Equal(p.t, OK, rows["connect mqtt"].Mark, "%+v", rows)
		for _, name := range []string{"second device mqtt", "idle mqtt"} {
			require.Equal(p.t, Skipped, rows[name].Mark, name)
			require.Contains(p.t, rows[name].Hint, "-no-messages", name)
		}
	})
}

// Without MQTT, -idle says that it was not tried.
func TestIdleWithoutMQTT(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.use(target.Flags{Transport: "amqp"}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
		p.probe.Options.Idle = time.Minute
		require.Equal(p.t, Skipped, p.run()["idle"].Mark)
	})
}

// A box on the way that forgets quiet connections is found by waiting longer than it does, and not
// by waiting less.
func TestABoxThatForgetsQuietConnections(t *testing.T) {
	for idle, mark := range map[time.Duration]Mark{
		1500 * time.Millisecond: OK, 2 * time.Minute: OK, 10 * time.Minute: Bad,
	} {
		examine(t, nil, func(p *patient) {
			p.overMQTT()
			open := p.dial
			p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := open(ctx, network, address)
				return &forgotten{Conn: conn, last: time.Now(), after: 4 * time.Minute}, err
			}
			p.probe.Options.Idle = idle
			row := p.run()["idle mqtt"]
			require.Equal(p.t, mark, row.Mark, "%+v", row)
		})
	}
}

// forgotten drops what is written after a time without traffic.
type forgotten struct {
	net.Conn
	last  time.Time
	after time.Duration
	dead  bool
}

func (f *forgotten) Write(b []byte) (int, error) {
	if f.dead = f.dead || time.Since(f.last) > f.after; f.dead {
		return len(b), nil
	}
	f.last = time.Now()
	return f.Conn.Write(b)
}

// With a gateway for some transports and the hub for the others, each row says which of them it is
// about.
func TestRowsOfTwoServersSayWhich(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.use(target.Flags{Addresses: []string{"mqtt-ws=gateway.example:443", "mqtt=gateway.example:8883"}},
			map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
		hub := p.hub.HostName()
		p.probe.Lookup = func(_ context.Context, host string) ([]string, error) {
			if host == "gateway.example" {
				return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
			}
			return []string{"192.0.2.1"}, nil
		}
		rows := p.run()
		require.ElementsMatch(p.t, []string{"name gateway.example"}, marks(rows, Bad), "%+v", rows)
		for name, mark := range map[string]Mark{
			"name " + hub: OK, "portal " + hub: OK, "portal gateway.example": Skipped,
			"port " + hub + ":443": OK, "port gateway.example:443": Skipped, "port gateway.example:8883": Skipped,
			"port 5671": OK, "tls 5671": OK,
			"connect mqtt": Skipped, "connect mqtt-ws": Skipped, "connect http": OK,
		} {
			require.Equal(p.t, mark, rows[name].Mark, "%s: %+v", name, rows[name])
		}
		require.True(p.t, strings.HasPrefix(rows["connect mqtt"].Hint, "first: "), rows["connect mqtt"].Hint)
	})
}
