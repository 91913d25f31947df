package dialer

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

type wsTunnel struct{}

func (wsTunnel) Port(bool) string                                       { return "1" }
func (wsTunnel) Open(context.Context, net.Conn, Peer) (net.Conn, error) { return nil, nil }

func TestTheTargetAndTheConfigFollowTheCredentials(t *testing.T) {
	creds := &transport.Credentials{Host: "hub.example.test", GatewayHost: "gateway.local", DeviceID: "d"}
	require.Equal(t, "gateway.local:8883", (&Options{Protocol: proto}).Target(creds))
	require.Equal(t, "gateway.local:1883", (&Options{Protocol: proto, Plaintext: true}).Target(creds))
	require.Equal(t, "[::1]:99", (&Options{Protocol: proto, Addr: "[::1]:99"}).Target(creds))

	require.Equal(t, "gateway.local:1", (&Options{Protocol: proto, Tunnel: wsTunnel{}}).Target(creds))

	base := &tls.Config{}
	o := Options{TLS: base}
	c := o.Config(creds, nil)
	require.Equal(t, "gateway.local", c.ServerName)
	require.Equal(t, uint16(tls.VersionTLS12), c.MinVersion)
	require.Empty(t, base.ServerName, "the user's config is not touched")
	base.ServerName, base.MinVersion = "other", tls.VersionTLS13
	require.Equal(t, "other", o.Config(creds, nil).ServerName)
	require.Equal(t, uint16(tls.VersionTLS13), o.Config(creds, nil).MinVersion)
}

// What is spoken is what is offered: package net/http writes HTTP's names into a config that it is
// given, and MQTT and AMQP may be given the same one.
func TestOnlyWhatIsSpokenIsOffered(t *testing.T) {
	web := []string{"h2", "http/1.1"}
	for name, c := range map[string]struct {
		o         Options
		says, has []string
	}{
		"nothing said":              {},
		"net/http was here":         {says: web},
		"the caller's":              {says: []string{"x-amzn-mqtt-ca"}, has: []string{"x-amzn-mqtt-ca"}},
		"the caller's, and HTTP's":  {says: []string{"h2", "mqtt", "http/1.0", "http/1.1"}, has: []string{"mqtt"}},
		"tunnel":                    {o: Options{Tunnel: wsTunnel{}}, has: []string{"http/1.1"}},
		"tunnel, net/http was here": {o: Options{Tunnel: wsTunnel{}}, says: web, has: []string{"http/1.1"}},
		"tunnel, the caller's":      {o: Options{Tunnel: wsTunnel{}}, says: []string{"mqtt"}, has: []string{"http/1.1"}},
		"HTTP":                      {o: Options{ALPN: web}, says: []string{"mqtt"}, has: web},
	} {
		t.Run(name, func(t *testing.T) {
			o, said := c.o, slices.Clone(c.says)
			o.TLS = &tls.Config{NextProtos: c.says}
			has := o.Config(&transport.Credentials{Host: "hub.example.test"}, nil).NextProtos
			require.True(t, slices.Equal(c.has, has), "%q", has)
			require.Equal(t, said, o.TLS.NextProtos, "the caller's config is not touched")
		})
	}
}

func TestClientCertificatesOfTheTLSSettingsCount(t *testing.T) {
	require.False(t, new(Options).HasCertificate())
	require.False(t, (&Options{TLS: &tls.Config{}}).HasCertificate())
	require.True(t, (&Options{Certificate: func(context.Context) (*tls.Certificate, error) {
		return nil, nil
	}}).HasCertificate())
	require.True(t, (&Options{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}).HasCertificate())
	require.True(t, (&Options{TLS: &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate,
		error) {
		return nil, nil
	}}}).HasCertificate())
}
