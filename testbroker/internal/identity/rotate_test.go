package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
)

// rotatedHandshake connects to the hub over TLS with a pool of authorities.
func rotatedHandshake(t *testing.T, h *testbroker.Hub, roots *x509.CertPool, name string) (*tls.Conn, error) {
	raw, err := h.Dial(testbroker.PortMQTTS)(t.Context(), "tcp", name+":8883")
	require.NoError(t, err)
	c := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: name})
	t.Cleanup(func() { c.Close() })
	return c, c.Handshake()
}

func TestARotationReplacesTheAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := testbroker.New(nil)
		require.NoError(t, err)
		defer h.Close()
		before, text := h.RootCAs(), h.CAPEM()
		open, err := rotatedHandshake(t, h, before, h.HostName())
		require.NoError(t, err)

		h.RotateCertificate()
		require.NotEqual(t, text, h.CAPEM())
		_, err = rotatedHandshake(t, h, before, h.HostName())
		require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
		fresh, err := rotatedHandshake(t, h, h.RootCAs(), h.HostName())
		require.NoError(t, err)
		require.NotEqual(t, open.ConnectionState().PeerCertificates[0].SerialNumber,
			fresh.ConnectionState().PeerCertificates[0].SerialNumber)

		_, err = open.Write([]byte{0x10})
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, 2, h.Drop(""), "the rotation cuts no connection")

		all := h.Authorities()
		require.Len(t, all, 2)
		require.NotEqual(t, all[0].Subject.CommonName, all[1].Subject.CommonName)
		pool := x509.NewCertPool()
		for _, ca := range all {
			pool.AddCert(ca)
		}
		_, err = rotatedHandshake(t, h, pool, h.HostName())
		require.NoError(t, err)
		for range 20 {
			h.RotateCertificate()
		}
		require.Len(t, h.Authorities(), 17)
	})
}

func TestARotationKeepsThePresentedName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := testbroker.New(nil)
		require.NoError(t, err)
		defer h.Close()
		require.NoError(t, h.PresentName("other.test"))
		h.RotateCertificate()
		_, err = rotatedHandshake(t, h, h.RootCAs(), "other.test")
		require.NoError(t, err)
		_, err = rotatedHandshake(t, h, h.RootCAs(), h.HostName())
		require.ErrorAs(t, err, new(x509.HostnameError))
	})
}

// With a seed, the first authority and each later one are the same from hub to hub.
func TestRotationsRepeatWithASeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs [2][]string
		for i := range runs {
			h, err := testbroker.New(&testbroker.Options{Seed: 7})
			require.NoError(t, err)
			for range 3 {
				runs[i] = append(runs[i], string(h.CAPEM()))
				h.RotateCertificate()
			}
			require.NoError(t, h.Close())
			time.Sleep(time.Hour)
		}
		require.Equal(t, runs[0], runs[1])
		keys := make(map[string]bool)
		for _, text := range runs[0] {
			block, _ := pem.Decode([]byte(text))
			require.NotNil(t, block)
			cert, err := x509.ParseCertificate(block.Bytes)
			require.NoError(t, err)
			keys[string(cert.RawSubjectPublicKeyInfo)] = true
		}
		require.Len(t, keys, 3, "each authority has its own key")
	})
}

func TestTheHubIssuesCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := testbroker.New(nil)
		require.NoError(t, err)
		defer h.Close()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{Subject: pkix.Name{CommonName: "proxy.test"}, DNSNames: []string{"proxy.test"}}
		one, err := h.IssueCertificate(template, &key.PublicKey)
		require.NoError(t, err)
		two, err := h.IssueCertificate(template, &key.PublicKey)
		require.NoError(t, err)
		require.NotEqual(t, one.SerialNumber, two.SerialNumber)
		require.Nil(t, template.SerialNumber, "the template stays as it is")
		_, err = one.Verify(x509.VerifyOptions{Roots: h.RootCAs(), DNSName: "proxy.test", CurrentTime: time.Now()})
		require.NoError(t, err)
		require.False(t, one.IsCA)
		h.RotateCertificate()
		_, err = one.Verify(x509.VerifyOptions{Roots: h.RootCAs(), DNSName: "proxy.test", CurrentTime: time.Now()})
		require.Error(t, err)

		for _, bad := range []*x509.Certificate{nil, {}} {
			_, err = h.IssueCertificate(bad, &key.PublicKey)
			require.ErrorContains(t, err, "common name")
		}
		_, err = h.IssueCertificate(template, "no key")
		require.ErrorContains(t, err, "issue a certificate")
	})
}
