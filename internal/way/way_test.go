package way

import (
	"context"
	"crypto/tls"
	"net"
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

func TestClientCertificatesOfTheTLSSettingsCount(t *testing.T) {
	require.False(t, new(Options).HasCertificate())
	require.False(t, (&Options{TLS: &tls.Config{}}).HasCertificate())
	require.True(t, (&Options{Certificate: func(context.Context) (*tls.Certificate, error) { return nil, nil }}).HasCertificate())
	require.True(t, (&Options{TLS: &tls.Config{Certificates: make([]tls.Certificate, 1)}}).HasCertificate())
	require.True(t, (&Options{TLS: &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }}}).HasCertificate())
}
