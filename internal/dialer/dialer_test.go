package dialer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

type wsTunnel struct{}

func (wsTunnel) Port(bool) string                                              { return "1" }
func (wsTunnel) Open(context.Context, net.Conn, netopt.Peer) (net.Conn, error) { return nil, nil }

func TestTheTargetAndTheConfigFollowTheCredentials(t *testing.T) {
	creds := &transport.Credentials{Host: "hub.example.test", GatewayHost: "gateway.local", DeviceID: "d"}
	require.Equal(t, "gateway.local:8883", (&Dialer{Protocol: proto}).Target(creds))
	require.Equal(t, "gateway.local:1883", (&Dialer{Protocol: proto, Network: netopt.Options{Plaintext: true}}).Target(
		creds))
	require.Equal(t, "[::1]:99", (&Dialer{Protocol: proto, Network: netopt.Options{Addr: "[::1]:99"}}).Target(creds))

	require.Equal(t, "gateway.local:1", (&Dialer{Protocol: proto, Network: netopt.Options{Tunnel: wsTunnel{}}}).Target(
		creds))

	base := &tls.Config{}
	d := Dialer{Protocol: proto, Network: netopt.Options{TLS: base}}
	c := d.Config(creds, nil, nil)
	require.Equal(t, "gateway.local", c.ServerName)
	require.Equal(t, uint16(tls.VersionTLS12), c.MinVersion)
	require.Empty(t, base.ServerName, "the user's config is not touched")
	base.ServerName, base.MinVersion = "other", tls.VersionTLS13
	require.Equal(t, "other", d.Config(creds, nil, nil).ServerName)
	require.Equal(t, uint16(tls.VersionTLS13), d.Config(creds, nil, nil).MinVersion)
}

// The dialer removes HTTP's names from ALPN: net/http adds them to each config that it is given,
// and MQTT and AMQP may share that config.
func TestOnlySpokenProtocolsAreOffered(t *testing.T) {
	web := []string{"h2", "http/1.1"}
	for name, c := range map[string]struct {
		d         Dialer
		says, has []string
	}{
		"nothing said":             {},
		"net/http was here":        {says: web},
		"the caller's":             {says: []string{"x-amzn-mqtt-ca"}, has: []string{"x-amzn-mqtt-ca"}},
		"the caller's, and HTTP's": {says: []string{"h2", "mqtt", "http/1.0", "http/1.1"}, has: []string{"mqtt"}},
		"tunnel":                   {d: Dialer{Network: netopt.Options{Tunnel: wsTunnel{}}}, has: []string{"http/1.1"}},
		"tunnel, net/http was here": {d: Dialer{Network: netopt.Options{Tunnel: wsTunnel{}}}, says: web,
			has: []string{"http/1.1"}},
		"tunnel, the caller's": {d: Dialer{Network: netopt.Options{Tunnel: wsTunnel{}}}, says: []string{"mqtt"},
			has: []string{"http/1.1"}},
		"HTTP": {d: Dialer{ALPN: web}, says: []string{"mqtt"}, has: web},
	} {
		t.Run(name, func(t *testing.T) {
			d, said := c.d, slices.Clone(c.says)
			d.Network.TLS = &tls.Config{NextProtos: c.says}
			has := d.Config(&transport.Credentials{Host: "hub.example.test"}, nil, nil).NextProtos
			require.True(t, slices.Equal(c.has, has), "%q", has)
			require.Equal(t, said, d.Network.TLS.NextProtos, "the caller's config is not touched")
		})
	}
}

func TestClientCertificatesOfTheTLSSettingsCount(t *testing.T) {
	certificate := func(context.Context) (*tls.Certificate, error) { return nil, nil }
	fromHandshake := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }
	for name, c := range map[string]struct {
		network netopt.Options
		want    bool
	}{
		"nothing":              {netopt.Options{}, false},
		"TLS without any":      {netopt.Options{TLS: &tls.Config{}}, false},
		"Certificate":          {netopt.Options{Certificate: certificate}, true},
		"Certificates of TLS":  {netopt.Options{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}, true},
		"GetClientCertificate": {netopt.Options{TLS: &tls.Config{GetClientCertificate: fromHandshake}}, true},
	} {
		require.Equal(t, c.want, (&Dialer{Network: c.network}).hasCertificate(), name)
	}
}

func TestTheDialFunctionGetsTheTimeoutAsItsDeadline(t *testing.T) {
	for name, proxy := range map[string]func(*url.URL, netopt.DialFunc) (netopt.DialFunc, error){
		"direct":          nil,
		"through a proxy": func(_ *url.URL, direct netopt.DialFunc) (netopt.DialFunc, error) { return direct, nil },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			var got time.Time
			d := Dialer{Protocol: proto, Timeout: 20 * time.Second, Network: netopt.Options{Plaintext: true, Proxy: proxy,
				Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
					got, _ = ctx.Deadline()
					return nil, errors.New("no way")
				}}}
			_, _, err := d.Dial(t.Context(), &transport.Credentials{Host: "hub.example.test", DeviceID: "d"}, nil)
			require.Error(t, err)
			require.Equal(t, time.Now().Add(20*time.Second), got)
		})
	}
}
