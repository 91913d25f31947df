package workload_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// bundle fetches the trust bundle and returns it as a pool, with the number of certificates.
func (d *daemon) bundle() (pool *x509.CertPool, n int) {
	status, a := d.call("GET", "/trust-bundle", "")
	require.Equal(d.t, 200, status)
	pool = x509.NewCertPool()
	rest := []byte(a["certificate"].(string))
	for len(rest) > 0 {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		require.NotNil(d.t, block)
		cert, err := x509.ParseCertificate(block.Bytes)
		require.NoError(d.t, err)
		pool.AddCert(cert)
		n++
	}
	return pool, n
}

// handshake makes a TLS connection to the hub with a pool of authorities.
func (d *daemon) handshake(roots *x509.CertPool) error {
	raw, err := d.hub.Dial(testbroker.PortMQTTS)(d.t.Context(), "tcp", "hub:8883")
	require.NoError(d.t, err)
	c := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: d.hub.HostName()})
	defer c.Close()
	return c.Handshake()
}

// A rotation changes the hub's authority. A client must fetch the bundle again.
func TestTheTrustBundleFollowsARotation(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := newDaemon(t, nil, &workload.Options{Overlap: overlap})
			before, n := d.bundle()
			require.Equal(t, 1, n)
			require.NoError(t, d.handshake(before))

			d.hub.RotateCertificate()
			require.ErrorAs(t, d.handshake(before), new(x509.UnknownAuthorityError))
			after, n := d.bundle()
			require.NoError(t, d.handshake(after))
			require.Equal(t, map[bool]int{false: 1, true: 2}[overlap], n)

			late := d.server.Inject(workload.Fault{Kind: workload.FaultStaleBundle, Times: -1})
			stale, n := d.bundle()
			require.Equal(t, 1, n)
			require.Error(t, d.handshake(stale))
			require.True(t, stale.Equal(before))
			late.Remove()
			after, _ = d.bundle()
			require.NoError(t, d.handshake(after))
		})
	}
}

func TestAForeignBundleVerifiesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		d.server.Inject(workload.Fault{Kind: workload.FaultForeignBundle, Times: 2})
		one, n := d.bundle()
		require.Equal(t, 1, n)
		require.ErrorAs(t, d.handshake(one), new(x509.UnknownAuthorityError))
		two, _ := d.bundle()
		require.True(t, one.Equal(two))
		own, _ := d.bundle()
		require.NoError(t, d.handshake(own))
	})
}

func TestTheManifestTrustBundle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		_, a := d.call("GET", "/manifest-trust-bundle", "")
		require.Equal(t, map[string]any{"certificate": ""}, a)

		text := bytes.Repeat(d.hub.CAPEM(), 2)
		d = newDaemon(t, nil, &workload.Options{ManifestTrustBundle: text})
		_, a = d.call("GET", "/manifest-trust-bundle", "")
		require.Equal(t, string(text), a["certificate"])
	})
}

// certificate asks for a certificate, and returns it with its key.
func (d *daemon) certificate(path, body string) (tls.Certificate, map[string]any) {
	status, a := d.call("POST", path, body)
	require.Equal(d.t, 201, status, a)
	key := a["privateKey"].(map[string]any)
	require.Equal(d.t, "key", key["type"])
	cert, err := tls.X509KeyPair([]byte(a["certificate"].(string)), []byte(key["bytes"].(string)))
	require.NoError(d.t, err)
	cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0])
	require.NoError(d.t, err)
	return cert, a
}

func TestIssuesCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDaemon(t, nil, nil)
		verify := func(cert tls.Certificate, name string, usage x509.ExtKeyUsage) error {
			_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: d.hub.RootCAs(), DNSName: name, CurrentTime: time.Now(),
				KeyUsages: []x509.ExtKeyUsage{usage}})
			return err
		}
		cert, a := d.certificate(path(d.filter, "certificate/server"), `{"commonName":"filter.test"}`)
		require.NoError(t, verify(cert, "filter.test", x509.ExtKeyUsageServerAuth))
		require.Error(t, verify(cert, "filter.test", x509.ExtKeyUsageClientAuth))
		require.Equal(t, time.Now().Add(90*24*time.Hour).UTC().Format(time.RFC3339), a["expiration"])
		require.Equal(t, time.Now().Add(90*24*time.Hour).UTC(), cert.Leaf.NotAfter)

		until := time.Now().Add(time.Hour).UTC()
		cert, a = d.certificate(path(d.filter, "certificate/server"),
			`{"commonName":"10.0.0.1","expiration":"`+until.Format(time.RFC3339)+`"}`)
		require.Equal(t, until, cert.Leaf.NotAfter)
		require.Equal(t, until.Format(time.RFC3339), a["expiration"])
		require.True(t, cert.Leaf.IPAddresses[0].Equal(net.IPv4(10, 0, 0, 1)))
		require.Empty(t, cert.Leaf.DNSNames)

		cert, _ = d.certificate("/modules/filter/certificate/identity", `{}`)
		require.Equal(t, "edge-1/filter", cert.Leaf.Subject.CommonName)
		require.NoError(t, verify(cert, "", x509.ExtKeyUsageClientAuth))
		require.Empty(t, cert.Leaf.DNSNames)

		for name, body := range map[string]string{
			"commonName is missing": `{}`, "is over": `{"commonName":"x","expiration":"1999-01-01T00:00:00Z"}`,
			"RFC 3339": `{"commonName":"x","expiration":"tomorrow"}`, "no body": ``, "IA5String": `{"commonName":"ü"}`,
		} {
			status, a := d.call("POST", path(d.filter, "certificate/server"), body)
			require.Equal(t, 400, status)
			require.Contains(t, a["message"], name)
		}
		status, _ := d.call("POST", "/modules/filter/certificate/identity", "")
		require.Equal(t, 400, status)
	})
}
