package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// otherKey is not the key of pump-1.
const otherKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// faults have, for each row, what turns it red or makes it warn.
var faults = []struct {
	name string
	// row has the mark, and begin with it is what the table asks the reader to do.
	row   string
	mark  Mark
	kind  transport.Kind
	hint  string
	hub   *testbroker.Options
	spoil func(p *patient)
}{
	{name: "clock of 1970", row: "clock", mark: Bad, kind: transport.ClockUnset, hint: "NTP",
		spoil: func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Unix(3600, 0) }
		}},
	{name: "clock an hour ahead", row: "skew", mark: Bad, kind: transport.ClockUnset, hint: "NTP",
		spoil: func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().Add(time.Hour) }
		}},
	{name: "clock ten minutes behind", row: "skew", mark: Bad, kind: transport.ClockUnset, hint: "NTP",
		spoil: func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().Add(-10 * time.Minute) }
		}},
	{name: "clock two minutes behind", row: "skew", mark: Warn, hint: "NTP",
		spoil: func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().Add(-2 * time.Minute) }
		}},
	{name: "wrong key", row: "connect mqtt", mark: Bad, kind: transport.Unauthorized, hint: "credentials",
		spoil: func(p *patient) { require.NoError(p.t, p.hub.SetKeys("pump-1", otherKey, otherKey)) }},
	{name: "wrong key over AMQP", row: "connect amqp", mark: Bad, kind: transport.Unauthorized,
		spoil: func(p *patient) { require.NoError(p.t, p.hub.SetKeys("pump-1", otherKey, otherKey)) }},
	{name: "wrong key over HTTPS", row: "connect http", mark: Bad, kind: transport.Unauthorized,
		spoil: func(p *patient) { require.NoError(p.t, p.hub.SetKeys("pump-1", otherKey, otherKey)) }},
	{name: "short key", row: "credentials", mark: Warn, hint: "32 bytes",
		spoil: func(p *patient) {
			short := base64.StdEncoding.EncodeToString(make([]byte, 16))
			require.NoError(p.t, p.hub.SetKeys("pump-1", short, short))
			p.use(target.Flags{}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
		}},
	{name: "no certificate", row: "credentials", mark: Bad, kind: transport.Invalid, hint: "-cert",
		spoil: func(p *patient) {
			p.use(target.Flags{}, map[string]string{target.EnvConnect: "HostName=" + p.hub.HostName() +
				";DeviceId=pump-1;x509=true"})
		}},
	{name: "disabled device", row: "connect mqtt", mark: Bad, kind: transport.Unauthorized,
		spoil: func(p *patient) { require.NoError(p.t, p.hub.SetEnabled("pump-1", false)) }},
	{name: "intercepting proxy", row: "tls 443", mark: Bad, kind: transport.Untrusted, hint: "-ca",
		spoil: func(p *patient) {
			p.probe.Target.Network.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		}},
	{name: "certificate of a portal", row: "tls 8883", mark: Bad, kind: transport.Untrusted, hint: "captive portal",
		spoil: func(p *patient) { require.NoError(p.t, p.hub.PresentName("portal.example")) }},
	{name: "expired certificate", row: "tls 8883", mark: Bad, kind: transport.Untrusted, hint: "has expired",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.ExpiredCertificate, Times: -1}) }},
	{name: "old TLS", row: "tls 8883", mark: Bad, kind: transport.Unsupported, hint: "TLS 1.2",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.OldTLS, Times: -1}) }},
	{name: "HTTP instead of TLS", row: "tls 8883", mark: Bad, kind: transport.Protocol, hint: "captive portal",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.NotTLS, Times: -1}) }},
	{name: "no handshake", row: "tls 8883", mark: Bad, kind: transport.Timeout,
		hint:  "nobody answered the handshake within 10s",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.MuteHandshake, Times: -1}) }},
	{name: "handshake cut", row: "tls 8883", mark: Bad, kind: transport.Network, hint: "the handshake was cut",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.CutHandshake, Times: -1}) }},
	{name: "an authority that does not sign for Azure", row: "tls 8883", mark: Warn, hint: "proxy on the way",
		hub: &testbroker.Options{HostName: "plant.azure-devices.net"}, spoil: func(*patient) {}},
	{name: "certificate near its end", row: "tls 8883", mark: Warn, hint: "renew",
		spoil: func(p *patient) {
			later := time.Until(time.Date(2049, 12, 20, 0, 0, 0, 0, time.UTC))
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().Add(later) }
		}},
	{name: "service unavailable", row: "connect mqtt", mark: Bad, kind: transport.Unavailable, hint: "will be back",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1}) }},
	{name: "no answer to the login", row: "connect mqtt", mark: Bad, kind: transport.Timeout,
		hint:  "did not answer the login within 10s",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.SwallowConnack, Times: -1}) }},
	{name: "message not acknowledged", row: "message mqtt", mark: Bad, kind: transport.Timeout, hint: "acknowledgement",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.SwallowPuback, Times: -1}) }},
	{name: "connection cut at a message", row: "message mqtt", mark: Bad, kind: transport.Network, hint: "quota",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.DropBeforePublish, Times: -1}) }},
	{name: "quota used up", row: "message http", mark: Bad, kind: transport.Quota,
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.Quota, Limit: -1, AcceptConnects: true}) }},
	{name: "throttling from the first message on", row: "message mqtt", mark: Warn, hint: "it throttles; send less often",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 2 * time.Second, Times: -1}) }},
	{name: "throttling of all messages", row: "throttling mqtt", mark: Bad, kind: transport.Throttled, hint: "less often",
		spoil: func(p *patient) {
			p.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 1200 * time.Millisecond, Times: -1})
			p.probe.Options.Burst = 4
		}},
	{name: "slow network", row: "message mqtt", mark: Warn, hint: "the network is slow: it answers in 1",
		spoil: func(p *patient) {
			p.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 2 * time.Second, Times: -1})
			p.slow(time.Second)
		}},
	{name: "throttling over MQTT", row: "throttling mqtt", mark: Bad, kind: transport.Throttled, hint: "less often",
		spoil: func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.Throttle, Rate: 5, Limit: 1000, After: 1}) }},
	{name: "throttling over HTTPS", row: "throttling http", mark: Bad, kind: transport.Throttled,
		spoil: func(p *patient) {
			p.use(target.Flags{Transport: "http"}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
			p.hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{429}, After: 1, Times: -1,
				Route: fault.RouteTelemetry})
		}},
}

// Each row turns red, or warns, for the fault that it is about.
func TestEachRowFindsItsFault(t *testing.T) {
	for _, c := range faults {
		t.Run(c.name, func(t *testing.T) {
			examine(t, c.hub, func(p *patient) {
				c.spoil(p)
				rows := p.run()
				row := rows[c.row]
				require.Equal(p.t, c.mark, row.Mark, "%+v", rows)
				require.Contains(p.t, row.Hint, c.hint)
				require.NotContains(p.t, row.Hint, "retries ended")
				if c.mark == Bad {
					require.Equal(p.t, c.kind, row.Kind, "%+v", row)
				}
				_, key, _ := strings.Cut(p.hub.ConnectionString("pump-1"), "SharedAccessKey=")
				require.NotContains(p.t, fmt.Sprint(rows), key, "no row shows the key")
			})
		})
	}
}

// The date of another server than the hub says nothing about the clock. That of the hub does, also
// if its certificate is wrong by its dates alone.
func TestSkewIsTheHubsAlone(t *testing.T) {
	spoils := map[string]func(p *patient){
		"portal": func(p *patient) { require.NoError(p.t, p.hub.PresentName("portal.example")) },
		"intercepting proxy": func(p *patient) {
			p.probe.Target.Network.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		},
		"HTTP instead of TLS": func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.NotTLS, Times: -1}) },
		"old TLS":             func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.OldTLS, Times: -1}) },
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			examine(t, nil, func(p *patient) {
				spoil(p)
				rows := p.run()
				require.Equal(p.t, Bad, rows["tls 443"].Mark)
				require.Equal(p.t, Row{Check: "skew", Mark: Skipped, Figure: "not tried", Hint: "first: tls 443"}, rows["skew"])
			})
		})
	}
	t.Run("clock of 2080", func(t *testing.T) {
		examine(t, nil, func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().AddDate(54, 0, 0) }
			rows := p.run()
			require.Contains(p.t, rows["tls 443"].Hint, "has expired")
			require.Contains(p.t, rows["skew"].Figure, "days ahead")
		})
	})
}

// With -transport the clock is compared too, if the hub's port for HTTPS answers. Without an answer
// nothing is wrong.
func TestTheSkewWithOneTransport(t *testing.T) {
	refused := func(p *patient) {
		open := p.dial
		p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":443") {
				return nil, &net.OpError{Op: "dial", Net: network, Err: io.ErrClosedPipe}
			}
			return open(ctx, network, address)
		}
	}
	portal := func(p *patient) {
		p.probe.Target.Network.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
	}
	for name, c := range map[string]struct {
		flags target.Flags
		spoil func(p *patient)
		mark  Mark
		hint  string
	}{
		"a clock that is right": {target.Flags{}, func(*patient) {}, OK, "agrees"},
		"a clock that is behind": {target.Flags{}, func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().Add(-2 * time.Hour) }
		}, Bad, "NTP"},
		"no HTTPS":           {target.Flags{}, refused, Skipped, "no answer at"},
		"a portal for HTTPS": {target.Flags{}, portal, Skipped, "is not the hub"},
		"a gateway":          {target.Flags{Addresses: []string{"mqtt=gateway.example:8883"}}, refused, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			examine(t, nil, func(p *patient) {
				c.flags.Transport = "mqtt"
				p.use(c.flags, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
				c.spoil(p)
				rows := p.run()
				require.Equal(p.t, c.mark, rows["skew"].Mark, "%+v", rows)
				require.Contains(p.t, rows["skew"].Hint, c.hint)
				if c.hint == "" {
					require.NotContains(p.t, rows, "skew")
				}
				require.NotContains(p.t, rows, "port 443")
			})
		})
	}
}

// A row that depends on a red one is not tried, and the red one comes first.
func TestTheFirstRedRowIsTheCause(t *testing.T) {
	examine(t, nil, func(p *patient) {
		require.NoError(p.t, p.hub.PresentName("portal.example"))
		rows := p.probe.Run(p.t.Context())
		require.Equal(p.t, "tls 8883", Worst(rows).Check)
		for _, r := range rows {
			if strings.HasPrefix(r.Check, "connect") || strings.HasPrefix(r.Check, "second") {
				require.Equal(p.t, Skipped, r.Mark, r.Check)
				require.Regexp(p.t, "^first: (tls|connect) ", r.Hint)
			}
		}
	})
}

// A proxy that the environment names is used for everything, and a wrong one is named without its
// password. A text that is no URL is ignored by the connections too, and the row says so.
func TestProxies(t *testing.T) {
	for _, c := range []struct {
		text        string
		proxy, port Mark
		hint        string
	}{
		{"http://user:pa55word@proxy.example:3128", Bad, Bad, "-no-proxy"},
		{"", OK, OK, "environment"},
		{"proxy.example:pa55word", Bad, Bad, "needs a host"},
		{"%%%", Warn, OK, "write http://HOST:PORT, or remove it"},
		{"http://user:pa55word%zz@proxy.example", Warn, OK, "write http://HOST:PORT, or remove it"},
		{"ftp://user:pa55word@proxy.example", Bad, Bad, "socks5h"},
		{"http://user:pa55word@:80", Bad, Bad, "needs a host"},
	} {
		t.Run(c.text, func(t *testing.T) {
			examine(t, nil, func(p *patient) {
				p.probe.Getenv = func(name string) string { return map[string]string{"HTTPS_PROXY": c.text}[name] }
				p.probe.FindProxy = func(*url.URL) (*url.URL, error) { return searched(c.text), nil }
				rows := p.run()
				require.Equal(p.t, c.proxy, rows["proxy"].Mark, "%+v", rows["proxy"])
				require.Contains(p.t, rows["proxy"].Hint, c.hint)
				require.Equal(p.t, c.port, rows["port 8883"].Mark, "%+v", rows["port 8883"])
				require.NotContains(p.t, fmt.Sprint(rows), "pa55word")
			})
		})
	}
}

// The doctor asks for the proxy of the service's name, as the transports do, and not for that of
// -address. A port without TLS has the proxy of another variable.
func TestAProxyIsChosenByTheServicesName(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy.example:3128"} // which does not answer
	for _, c := range []struct {
		name, address, scheme, proxied string
		figure                         string
		port                           Mark
		variable                       string
	}{
		{"the address has one", "gateway.example:8883", "", "https://gateway.example:8883/", "none", OK, "environment"},
		{"the name has one", "gateway.example:8883", "", "https://HUB:8883/", "network failure", Bad, " HTTPS_PROXY "},
		{"a usual port", "gateway.example:443", "", "https://HUB/", "network failure", Bad, " HTTPS_PROXY "},
		{"no TLS", "", "mqtt", "http://HUB:1883/", "network failure", Bad, " HTTP_PROXY "},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &testbroker.Options{}
			if c.scheme != "" {
				o.Broker = &testbroker.BrokerOptions{}
			}
			examine(t, o, func(p *patient) {
				flags := target.Flags{Transport: "mqtt"}
				env := map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")}
				if c.scheme != "" {
					env = map[string]string{target.EnvBroker: p.hub.BrokerURL("pump-1", c.scheme, p.hub.HostName()+":1883")}
				} else {
					flags.Addresses = []string{c.address}
				}
				p.use(flags, env)
				p.dial = func(open hubfixture.Dialer) hubfixture.Dialer {
					return func(ctx context.Context, network, address string) (net.Conn, error) {
						if address == proxy.Host {
							return nil, &net.OpError{Op: "dial", Net: network, Err: io.ErrClosedPipe}
						}
						if address == "gateway.example:443" {
							address = "gateway.example:8883"
						}
						return open(ctx, network, address)
					}
				}(p.dial)
				p.probe.FindProxy = func(u *url.URL) (*url.URL, error) {
					if strings.ReplaceAll(c.proxied, "HUB", p.hub.HostName()) == u.String() {
						return proxy, nil
					}
					return nil, nil
				}
				rows := p.run()
				require.Equal(p.t, c.figure, rows["proxy"].Figure, "%+v", rows)
				require.Contains(p.t, rows["proxy"].Hint, c.variable)
				for name, row := range rows {
					if strings.HasPrefix(name, "port ") {
						require.Equal(p.t, c.port, row.Mark, "%+v", rows)
					}
				}
				want := OK
				if c.port == Bad {
					want = Skipped
				}
				require.Equal(p.t, want, rows["connect mqtt"].Mark, "%+v", rows)
			})
		})
	}
}

// searched returns the proxy that net/http finds in HTTPS_PROXY, which it searches only once.
func searched(text string) *url.URL {
	proxy, err := url.Parse(text)
	if err != nil || proxy.Scheme == "" || proxy.Host == "" {
		if withScheme, err := url.Parse("http://" + text); err == nil && text != "" {
			return withScheme
		}
	}
	if err != nil || text == "" {
		return nil
	}
	return proxy
}

// What FindProxy refuses is not a URL.
func TestAProxyThatIsRefused(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.FindProxy = func(*url.URL) (*url.URL, error) { return nil, errors.New("pa55word") }
		row := p.run()["proxy"]
		require.Equal(p.t, Bad, row.Mark)
		require.Equal(p.t, transport.Invalid, row.Kind)
		require.NotContains(p.t, row.Hint, "pa55word")
	})
}
