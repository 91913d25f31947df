package dialer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// listenIPv6 listens at a port of ::1.
func listenIPv6(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("NOT TESTED: this machine has no ::1, so no connection over IPv6 is made: %v", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// certificateFor returns a self-signed certificate for one IP address.
func certificateFor(t *testing.T, ip string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(ip)}, IsCA: true, BasicConstraintsValid: true,
	}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

func TestTLSOverIPv6VerifiesTheAddress(t *testing.T) {
	for certified, ok := range map[string]bool{"::1": true, "::2": false} {
		l := listenIPv6(t)
		cert, roots := certificateFor(t, certified)
		names := make(chan string, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				names <- err.Error()
				return
			}
			defer c.Close()
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
			_ = s.Handshake()
			names <- s.ConnectionState().ServerName
		}()
		_, port, err := net.SplitHostPort(l.Addr().String())
		require.NoError(t, err)
		own := *proto
		own.Secure = port
		d := &Dialer{Protocol: &own, Network: netopt.Options{TLS: &tls.Config{RootCAs: roots}}}
		require.NoError(t, d.Resolve())
		creds := &transport.Credentials{Host: "::1", DeviceID: "d"}
		require.NoError(t, creds.Validate())
		require.Equal(t, "[::1]:"+port, d.Target(creds))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		outer, _, err := d.Dial(ctx, creds, nil)
		cancel()
		if ok {
			require.NoError(t, err)
			require.NoError(t, outer.Close())
		} else {
			require.Equal(t, transport.Untrusted, d.Protocol.Error(err).Kind, "%v", err)
		}
		require.Empty(t, <-names, "an address is no server name [RFC 6066, 3]")
	}
}

func TestTheProxyOfAnIPv6HostGetsAURL(t *testing.T) {
	for addr, want := range map[string]string{"": "https://[::1]:8883/", "[::1]:443": "https://[::1]/",
		"[::1]:99": "https://[::1]:99/"} {
		var hub string
		d := &Dialer{Protocol: proto, Network: netopt.Options{Addr: addr,
			Proxy: func(u *url.URL, direct netopt.DialFunc) (netopt.DialFunc, error) {
				hub = u.String()
				return direct, nil
			}}}
		require.NoError(t, d.Resolve())
		_, err := d.dialFunc(&transport.Credentials{Host: "::1", DeviceID: "d"})
		require.NoError(t, err)
		require.Equal(t, want, hub)
	}
}

func TestClientsWithoutProofAreAllowedOnRequest(t *testing.T) {
	get := func(creds transport.Credentials, network netopt.Options) error {
		_, err := (&Dialer{Protocol: proto, Network: network}).ClientCertificate(context.Background(), &creds)
		return err
	}
	require.ErrorContains(t, get(transport.Credentials{}, netopt.Options{}), "set Anonymous there")
	require.NoError(t, get(transport.Credentials{}, netopt.Options{Anonymous: true}))
	require.NoError(t, get(transport.Credentials{}, netopt.Options{Plaintext: true}))
	require.NoError(t, get(transport.Credentials{UserName: "a token"}, netopt.Options{}))
	hub := Dialer{Protocol: &Protocol{Name: "https", HTTP: true}, Network: netopt.Options{Anonymous: true}}
	require.ErrorContains(t, hub.Resolve(), "Anonymous is set, but HTTPS is for hubs")
}
