package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

func TestCertificates(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		commonName  string
		from, until time.Duration
		mark        Mark
		hint        string
	}{
		"good":          {"pump-1", -day, 365 * day, OK, "complete"},
		"expired":       {"pump-1", -10 * day, -day, Bad, "has expired"},
		"not valid yet": {"pump-1", day, 365 * day, Bad, "clock"},
		"ends soon":     {"pump-1", -day, 7 * day, Warn, "renew"},
		"another name":  {"pump-7", -day, 365 * day, Warn, "pump-1"},
	} {
		t.Run(name, func(t *testing.T) {
			examine(t, nil, func(p *patient) {
				pair := testbroker.NewClientCert(c.commonName, time.Now().Add(c.from), time.Now().Add(c.until))
				leaf, err := x509.ParseCertificate(pair.Certificate[0])
				require.NoError(p.t, err)
				_, err = p.hub.AddDeviceX509("pump-9", testbroker.Thumbprint(leaf))
				require.NoError(p.t, err)
				p.probe.Target.Creds.DeviceID = "pump-1"
				p.probe.Target.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &pair, nil }
				row := p.run()["credentials"]
				require.Equal(p.t, c.mark, row.Mark, "%+v", row)
				require.Contains(p.t, row.Hint, c.hint)
			})
		})
	}
}

// A URL without user name and password is no mistake, and the row says what follows from it.
func TestAURLWithoutCredentials(t *testing.T) {
	examine(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}}, func(p *patient) {
		p.use(target.Flags{Connect: "mqtts://localhost:8883/?device=pump-1&telemetry=t", Transport: "mqtt"}, nil)
		rows := p.run()
		require.Equal(p.t, OK, rows["credentials"].Mark, "%+v", rows["credentials"])
		require.Equal(p.t, "none in the URL", rows["credentials"].Figure)
		require.Contains(p.t, rows["credentials"].Hint, "the broker has to take every client")
		require.Equal(p.t, Bad, rows["connect mqtt"].Mark, "this broker does not")
	})
}

// A token that cannot be renewed is suspect in its last day, and red after its end; the login is
// not tried then.
func TestTokens(t *testing.T) {
	for wait, mark := range map[time.Duration]Mark{0: OK, 40 * time.Hour: Warn, 49 * time.Hour: Bad} {
		examine(t, nil, func(p *patient) {
			p.probe.Target.Creds.TokenLife = 48 * time.Hour
			token, err := p.probe.Target.Creds.NewToken(p.t.Context())
			require.NoError(p.t, err)
			text, _, _ := strings.Cut(p.hub.ConnectionString("pump-1"), "SharedAccessKey=")
			p.use(target.Flags{}, map[string]string{target.EnvConnect: text + "SharedAccessSignature=" + strings.TrimPrefix(
				token.Text.Reveal(), "SharedAccessSignature=")})
			time.Sleep(wait)
			rows := p.run()
			require.Equal(p.t, mark, rows["credentials"].Mark, "%+v", rows["credentials"])
			require.Equal(p.t, mark == Bad, rows["connect mqtt"].Mark == Skipped)
			if mark == Bad {
				require.Equal(p.t, transport.Unauthorized, rows["credentials"].Kind)
			}
		})
	}
}

// A proxy that opens one port's connections with an authority that the machine trusts shows by the
// difference to the other ports.
func TestTwoAuthoritiesForOneName(t *testing.T) {
	examine(t, nil, func(p *patient) {
		other := hubfixture.Open(p.t, nil, "pump-1")
		roots := x509.NewCertPool()
		require.True(p.t, roots.AppendCertsFromPEM(p.hub.CAPEM()) && roots.AppendCertsFromPEM(other.CAPEM()))
		p.probe.Target.Network.TLS = &tls.Config{RootCAs: roots}
		open, opened := p.dial, hubfixture.AtPorts(other)
		p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.HasSuffix(address, ":443") {
				return opened(ctx, network, address)
			}
			return open(ctx, network, address)
		}
		rows := p.run()
		require.Equal(p.t, OK, rows["tls 8883"].Mark)
		require.Equal(p.t, Warn, rows["tls 443"].Mark)
		require.Contains(p.t, rows["tls 443"].Hint, "another authority")
	})
}

// Everything goes through a proxy that works, and names are its business.
func TestAProxyThatWorks(t *testing.T) {
	examine(t, nil, func(p *patient) {
		p.probe.FindProxy = func(*url.URL) (*url.URL, error) { return url.Parse("http://proxy.example:3128") }
		p.probe.Lookup = func(context.Context, string) ([]string, error) { return nil, &net.DNSError{Err: "no such host"} }
		open := p.dial
		p.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != "proxy.example:3128" {
				return nil, &net.OpError{Op: "dial", Net: network, Err: io.ErrClosedPipe}
			}
			near, far := net.Pipe()
			go forward(far, open)
			return near, nil
		}
		rows := p.run()
		require.Equal(p.t, Warn, rows["name"].Mark)
		require.Equal(p.t, "http://proxy.example:3128", rows["proxy"].Figure)
		require.Contains(p.t, rows["port 8883"].Figure, "through the proxy")
		for _, name := range hubTransports {
			require.Equal(p.t, OK, rows["message "+name].Mark, "%+v", rows["connect "+name])
		}
	})
}

// forward is a proxy for one connection. It ends with either side.
func forward(client net.Conn, dial hubfixture.Dialer) {
	defer client.Close()
	in := bufio.NewReader(client)
	request, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	server, err := dial(context.Background(), "tcp", request.Host)
	if err != nil {
		return
	}
	defer server.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() { // ends with the client's side
		_, _ = io.Copy(server, in)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
}
