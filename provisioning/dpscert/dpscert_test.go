package dpscert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// The chain that the service issues works with the key that signed the request, and with no other.
func TestARegistrationWithASigningRequest(t *testing.T) {
	d, err := testbroker.NewDPS(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, h.Close()) }()
	require.NoError(t, d.Link(h))
	authority := testbroker.NewCertAuthority("root")
	e, err := d.Enroll(dpsdata.Enrollment{ID: "reg-0001", Issue: authority.Issuer(0)})
	require.NoError(t, err)
	sign, err := transport.SharedKey(e.PrimaryKey)
	require.NoError(t, err)

	key := newKey(t)
	csr, err := dpscert.Request("reg-0001", key)
	require.NoError(t, err)
	c, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
		RegistrationID: "reg-0001", Sign: sign}, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS),
		TLS: d.ClientTLS()}), &provisioning.Options{CSR: csr})
	require.NoError(t, err)
	a, err := c.Register(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, a.Chain)
	cert, err := dpscert.Certificate(a.Chain, key)(t.Context())
	require.NoError(t, err)
	require.Equal(t, "reg-0001", cert.Leaf.Subject.CommonName)
	require.Equal(t, a.Chain, cert.Certificate)

	_, err = dpscert.Certificate(a.Chain, newKey(t))(t.Context())
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "another key")
}

func TestWrongChainsAndKeys(t *testing.T) {
	for name, chain := range map[string][][]byte{"empty": nil, "damaged": {{1, 2, 3}}} {
		_, err := dpscert.Certificate(chain, newKey(t))(t.Context())
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, name)
	}
	_, err := dpscert.Certificate([][]byte{{1}}, nil)(t.Context())
	require.ErrorContains(t, err, "key is nil")
	_, err = dpscert.Request("reg-0001", nil)
	require.ErrorIs(t, err, transport.Invalid)
}

// FuzzCertificate makes a certificate of any chain.
func FuzzCertificate(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(f, err)
	self := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "reg-1"}}
	der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
	require.NoError(f, err)
	f.Add(der, der)
	f.Add(der, []byte{1})
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, leaf, issuer []byte) {
		cert, err := dpscert.Certificate([][]byte{leaf, issuer}, key)(t.Context())
		if err != nil {
			require.ErrorIs(t, err, transport.Invalid)
			require.Nil(t, cert)
			return
		}
		require.True(t, key.PublicKey.Equal(cert.Leaf.PublicKey))
	})
}
