package doctor

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// behindProxy puts a proxy before the hub, which answers status to CONNECT unless the address ends
// so. Status 0 is none: the proxy closes the connection.
func (p *patient) behindProxy(status int, except string) {
	open := p.dial
	p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "proxy.example:3128" {
			return nil, &net.OpError{Op: "dial", Net: network, Err: io.ErrClosedPipe}
		}
		near, far := net.Pipe()
		go func() { // ends with the connection
			defer far.Close()
			r, err := http.ReadRequest(bufio.NewReader(far))
			if err != nil {
				return
			}
			if except == "" || !strings.HasSuffix(r.Host, except) {
				if status == 0 {
					return
				}
				_, _ = io.WriteString(far, "HTTP/1.1 "+strconv.Itoa(status)+" no\r\n\r\n")
				return
			}
			hub, err := open(ctx, network, r.Host)
			if err != nil {
				return
			}
			defer hub.Close()
			_, _ = io.WriteString(far, "HTTP/1.1 200 yes\r\n\r\n")
			go func() {
				_, _ = io.Copy(hub, far)
				_ = hub.Close()
			}()
			_, _ = io.Copy(far, hub)
		}()
		return near, nil
	}
	p.probe.FindProxy = func(*url.URL) (*url.URL, error) { return url.Parse("http://proxy.example:3128") }
}

// A proxy that refuses is blamed itself, and neither the hub nor the credentials are.
func TestAProxyThatRefusesIsTheCause(t *testing.T) {
	for status, hint := range map[int]string{
		407: "http://USER:PASSWORD@HOST:PORT", 403: "ask who runs it", 405: "ask who runs it",
		302: "check host and port of the proxy", 0: "closed the connection",
	} {
		examine(t, nil, func(p *patient) {
			p.behindProxy(status, "")
			rows := p.run()
			require.Equal(p.t, Bad, rows["proxy"].Mark, "%+v", rows["proxy"])
			require.Contains(p.t, rows["proxy"].Hint, hint)
			worst := Worst(p.probe.rows)
			require.Equal(p.t, "proxy", worst.Check)
			require.Equal(p.t, transport.Network, worst.Kind, "the service was not reached")
			for name, row := range rows {
				require.NotContains(p.t, row.Hint, "check key", name)
				require.NotContains(p.t, row.Hint, "enable it on the hub", name)
			}
			require.Contains(p.t, rows["port 8883"].Hint, hint)
		})
	}
}

// A proxy that lets only port 443 through is a warning, because some transports work.
func TestAProxyThatAllowsSomePortsIsAWarning(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.behindProxy(403, ":443")
		rows := p.run()
		require.Equal(p.t, Warn, rows["proxy"].Mark, "%+v", rows["proxy"])
		require.Contains(p.t, rows["proxy"].Hint, "the proxy connects to 443 and not to 8883, 5671")
		require.Equal(p.t, Bad, rows["port 8883"].Mark)
		require.Contains(p.t, rows["port 8883"].Hint, "transports over port 443 may get through")
		require.Equal(p.t, OK, rows["connect mqtt-ws"].Mark, "%+v", rows["connect mqtt-ws"])
	})
}

// A proxy that cannot reach the service is not said to restart.
func TestAProxyThatDoesNotGetThrough(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.behindProxy(502, "")
		rows := p.run()
		require.Equal(p.t, OK, rows["proxy"].Mark)
		require.Equal(p.t, Bad, rows["port 443"].Mark)
		require.Contains(p.t, rows["port 443"].Hint, "does not get through to the service")
		require.NotContains(p.t, rows["port 443"].Hint, "will be back")
	})
}

// MQTT 3.1.1 says the same about a restart, throttling and a quota. The row of another transport
// that says which is the one to begin with.
func TestTheRowThatNamesTheCauseComesFirst(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault.Fault
		kind  transport.Kind
	}{
		"quota, connects refused":  {fault.Fault{Kind: fault.Quota, Limit: -1}, transport.Quota},
		"quota, connects accepted": {fault.Fault{Kind: fault.Quota, Limit: -1, AcceptConnects: true}, transport.Quota},
	} {
		t.Run(name, func(t *testing.T) {
			examine(t, nil, func(p *patient) {
				p.hub.Inject(c.fault)
				rows := p.run()
				worst := Worst(p.probe.rows)
				require.Equal(p.t, c.kind, worst.Kind, "%+v", rows)
				require.Contains(p.t, worst.Hint, "probably the cause of ")
				require.Contains(p.t, worst.Hint, " mqtt, ")
				for _, row := range rows {
					if row.vague {
						require.Contains(p.t, row.Hint, "quota is used up", row.Check)
						require.Contains(p.t, row.Hint, "(http says which)", row.Check)
					}
				}
			})
		})
	}
}

// A clock ahead and one behind have other effects.
func TestTheHintFollowsTheSkewsDirection(t *testing.T) {
	for ahead, hints := range map[time.Duration][2]string{
		time.Hour: {"seem to have expired", "expired by its own"}, -time.Hour: {"expired by its own", "seem to have expired"},
	} {
		examine(t, nil, func(p *patient) {
			p.probe.Target.Creds.Now = func() time.Time { return time.Now().Add(ahead) }
			row := p.run()["skew"]
			require.Contains(p.t, row.Hint, hints[0])
			require.NotContains(p.t, row.Hint, hints[1])
		})
	}
}

// authority returns an authority whose certificate begins at a time.
func authority(t *testing.T, begin time.Time) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "a young authority"}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: begin, NotAfter: begin.AddDate(10, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// The clock is compared also if the server's certificate is valid for longer than its authority's.
func TestTheSkewIsKnownUnderAYoungAuthority(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		o := &testbroker.Options{Authority: authority(t, time.Now().Add(-time.Minute))}
		p := newPatient(t, o)
		rows := p.run()
		require.Equal(t, OK, rows["tls 443"].Mark, "%+v", rows["tls 443"])
		require.Equal(t, OK, rows["skew"].Mark, "%+v", rows["skew"])
	})
}

// A certificate with a common name alone has no name that clients read.
func TestACertificateWithACommonNameAlone(t *testing.T) {
	examine(t, nil, func(p *patient) {
		pair := testbroker.NewClientCert("old.example", time.Time{}, time.Time{})
		p.dial = func(context.Context, string, string) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _ = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}}).Handshake() }()
			return near, nil
		}
		p.probe.Target.Network.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		p.probe.Target.Network.TLS.RootCAs.AddCert(pair.Leaf)
		row := p.run()["tls 8883"]
		require.Equal(p.t, transport.Untrusted, row.Kind)
		require.Contains(p.t, row.Hint, `no name but the common name "old.example"`)
	})
}

// A redirection that comes over trusted TLS is no hub's.
func TestARedirectionOverTrustedTLSIsAPortals(t *testing.T) {
	for _, name := range []string{"http", "mqtt-ws", "amqp-ws"} {
		examine(t, nil, func(p *patient) {
			p.use(target.Flags{Transport: name}, map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")})
			p.dial = overTLS(p.t, p.hub, "HTTP/1.1 302 Found\r\nLocation: https://login.example/\r\nDate: "+
				time.Now().Add(time.Hour).Format(http.TimeFormat)+"\r\nContent-Length: 0\r\n\r\n")
			rows := p.run()
			require.Equal(p.t, OK, rows["tls 443"].Mark, "%+v", rows["tls 443"])
			failed := rows["connect "+name]
			require.Equal(p.t, Bad, failed.Mark, "%+v", rows)
			require.Contains(p.t, failed.Hint, "a captive portal or a proxy on the way answers in place of the service")
			require.Equal(p.t, Skipped, rows["skew"].Mark, "the date is not the hub's")
		})
	}
}

// overTLS returns a network with a server that has the hub's certificate and gives one answer.
func overTLS(t *testing.T, hub *testbroker.Hub, answer string) hubfixture.Dialer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	leaf, err := hub.IssueCertificate(&x509.Certificate{
		Subject: pkix.Name{CommonName: hub.HostName()}, DNSNames: []string{hub.HostName()},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, key.Public())
	require.NoError(t, err)
	pair := tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() { // ends with the connection
			secure := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{pair}})
			_, _ = secure.Read(make([]byte, 4096))
			_, _ = io.WriteString(secure, answer)
			_ = secure.Close()
		}()
		return near, nil
	}
}

// Hints about a plain broker do not speak of a hub.
func TestHintsAboutABrokerNameNoHub(t *testing.T) {
	for name, spoil := range map[string]func(p *patient){
		"wrong key":   func(p *patient) { require.NoError(p.t, p.hub.SetKeys("pump-1", otherKey, otherKey)) },
		"unavailable": func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Times: -1}) },
		"cut":         func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.DropBeforePublish, Times: -1}) },
		"no answer":   func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.SwallowConnack, Times: -1}) },
		"slow": func(p *patient) {
			p.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Delay: 2 * time.Second, Times: -1})
		},
		"closed":        func(p *patient) { require.NoError(p.t, p.hub.Close()) },
		"other name":    func(p *patient) { require.NoError(p.t, p.hub.PresentName("portal.example")) },
		"quota of zero": func(p *patient) { p.hub.Inject(fault.Fault{Kind: fault.Quota, Limit: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			examine(t, &testbroker.Options{HostName: "broker.example", Broker: &testbroker.BrokerOptions{}}, func(p *patient) {
				p.use(target.Flags{}, map[string]string{
					target.EnvBroker: p.hub.BrokerURL("pump-1", "mqtts", p.hub.HostName()+":8883")})
				spoil(p)
				for check, row := range p.run() {
					require.NotRegexp(p.t, `\b[Hh]ub\b`, row.Hint, check)
					require.NotContains(p.t, row.Hint, "device id, the clock", check)
				}
			})
		})
	}
}

// ports are addresses with another protocol than the transport's.
var ports = []struct {
	name, url, address, transport string
	row, hint                     string
}{
	{"TLS at a plain port", "mqtts", ":1883", "mqtt", "tls 1883",
		"speaks MQTT without TLS, and the transport wants MQTT with TLS: give a URL with mqtt://"},
	{"no TLS at a port with TLS", "mqtt", ":8883", "mqtt", "connect mqtt",
		"speaks MQTT with TLS, and the transport wants MQTT without TLS: give a URL with mqtts://"},
	{"no TLS at a port with TLS, MQTT 5", "mqtt", ":8883", "mqtt5", "connect mqtt5", "give a URL with mqtts://"},
	{"WebSocket at a port for MQTT", "wss", ":8883", "mqtt", "connect mqtt",
		"speaks MQTT with TLS, and the transport wants HTTP with TLS: check the port of the URL, or give one with mqtts://"},
	{"MQTT at a port for AMQP", "mqtts", ":5671", "mqtt", "connect mqtt",
		"speaks AMQP with TLS, and the transport wants MQTT with TLS: check the port of the URL, or give one with amqps://"},
	{"MQTT at a port for HTTPS", "mqtts", ":443", "mqtt", "connect mqtt", "speaks HTTP with TLS"},
	{"HTTPS at a port for MQTT", "", ":8883", "http", "connect http",
		"speaks MQTT with TLS, and the transport wants HTTP with TLS: check the port of -address"},
	{"AMQP at a port for MQTT", "", ":8883", "amqp", "connect amqp", "speaks MQTT with TLS"},
	{"a hub's device at a plain port", "", ":1883", "mqtt", "tls 1883", "speaks MQTT without TLS"},
	{"WebSocket for AMQP at its port", "", ":5671", "amqp-ws", "connect amqp-ws", "speaks AMQP with TLS"},
}

// A port that speaks another protocol is named, with what to change.
func TestTheProtocolOfThePortIsNamed(t *testing.T) {
	for _, c := range ports {
		t.Run(c.name, func(t *testing.T) {
			o := &testbroker.Options{}
			if c.url != "" {
				o.Broker = &testbroker.BrokerOptions{}
			}
			examine(t, o, func(p *patient) {
				flags := target.Flags{Transport: c.transport}
				env := map[string]string{target.EnvConnect: p.hub.ConnectionString("pump-1")}
				if c.url != "" {
					env = map[string]string{
						target.EnvBroker: p.hub.BrokerURL("pump-1", c.url, p.hub.HostName()+c.address)}
				} else {
					flags.Addresses = []string{p.hub.HostName() + c.address}
				}
				p.use(flags, env)
				rows := p.run()
				row := rows[c.row]
				require.Equal(p.t, Bad, row.Mark, "%+v", rows)
				require.Contains(p.t, row.Hint, c.hint)
				require.NotEqual(p.t, Bad, rows["skew"].Mark, "the clock is not to blame: %+v", rows["skew"])
			})
		})
	}
}
