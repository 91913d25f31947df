package mqtt

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// certify returns a self-signed certificate for host that is valid at now, and a pool with it.
func certify(t testing.TB, host string, now time.Time) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// serveTLS makes the hub use TLS, and o trust its certificate.
func (h *hub) serveTLS(t testing.TB, o *Options) {
	cert, pool := certify(t, "hub.example.test", time.Now())
	h.wrap = func(c net.Conn) net.Conn { return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}) }
	o.Network.Plaintext, o.Network.TLS = false, &tls.Config{RootCAs: pool}
}

// realHub is a hub on a real TLS port.
func realHub(t *testing.T) (*testbroker.Hub, hubdata.Device, string) {
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	dev, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	addr, err := h.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	return h, dev, addr.String()
}
