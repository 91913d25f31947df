package dpscert_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/provisioning/dpscert"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
)

func TestWrongChainsAndKeys(t *testing.T) {
	for name, chain := range map[string][][]byte{"empty": nil, "damaged": {{1, 2, 3}}} {
		_, err := dpscert.Certificate(chain, newKey(t))(t.Context())
		require.ErrorIs(t, err, transport.Unauthorized)
		require.ErrorContains(t, err, name)
	}
	_, err := dpscert.Certificate([][]byte{{1}}, nil)(t.Context())
	require.ErrorContains(t, err, "key is nil")
	_, err = dpscert.Request("reg-0001", nil)
	require.ErrorIs(t, err, transport.Invalid)
}

// The first certificate of a chain is the device's.
func TestTheLeafIsTheFirst(t *testing.T) {
	var chain [][]byte
	var keys []*ecdsa.PrivateKey
	for _, name := range []string{"reg-1", "root"} {
		key := newKey(t)
		self := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}}
		der, err := x509.CreateCertificate(rand.Reader, self, self, key.Public(), key)
		require.NoError(t, err)
		chain, keys = append(chain, der), append(keys, key)
	}
	cert, err := dpscert.Certificate(chain, keys[0])(t.Context())
	require.NoError(t, err)
	require.Equal(t, "reg-1", cert.Leaf.Subject.CommonName)
	_, err = dpscert.Certificate(chain, keys[1])(t.Context())
	require.ErrorContains(t, err, "another key")
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
			require.ErrorIs(t, err, transport.Unauthorized)
			require.Nil(t, cert)
			return
		}
		require.True(t, key.PublicKey.Equal(cert.Leaf.PublicKey))
	})
}

// Check refuses everything but a chain that was asked for. Another answer may do better.
func TestCheck(t *testing.T) {
	root := testbroker.NewCertAuthority("root")
	key, now := newKey(t), time.Now()
	between := root.NewAuthority("between")
	issue := func(change func(c *x509.Certificate)) [][]byte {
		der, err := dpscert.Request("reg-0001", key)
		require.NoError(t, err)
		csr, err := x509.ParseCertificateRequest(der)
		require.NoError(t, err)
		chain, err := between.Issuer(24 * time.Hour)(csr)
		require.NoError(t, err)
		if change != nil {
			template, err := x509.ParseCertificate(chain[0])
			require.NoError(t, err)
			change(template)
			self := newKey(t)
			chain[0], err = x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: template.Issuer},
				&key.PublicKey, self)
			require.NoError(t, err)
			chain = chain[:1]
		}
		return chain
	}
	good := issue(nil)
	cert, err := dpscert.Check(good, key, "reg-0001", now)
	require.NoError(t, err)
	require.Equal(t, good, cert.Certificate)
	_, err = dpscert.Check(good[:1], key, "reg-0001", now)
	require.NoError(t, err, "without its authority")
	_, err = dpscert.Check(issue(func(*x509.Certificate) {}), key, "reg-0001", now)
	require.NoError(t, err)
	_, err = dpscert.Check(good, nil, "reg-0001", now)
	require.ErrorIs(t, err, transport.Invalid)

	type C = x509.Certificate
	for want, chain := range map[string][][]byte{
		"is empty":         nil,
		"is damaged":       {{1, 2, 3}},
		"too large":        append(slices.Clone(good), make([]byte, 16<<10+1)),
		"is too large":     slices.Repeat(good[:1], 17),
		"another key":      root.NewClientCert("reg-0001", now, now.Add(time.Hour)).Certificate,
		"common name":      issue(func(c *C) { c.RawSubject, c.Subject.CommonName = nil, "reg-0002" }),
		"not one for":      issue(func(c *C) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
		"for clients":      issue(func(c *C) { c.IsCA, c.BasicConstraintsValid = true, true }),
		"ends at":          issue(func(c *C) { c.NotAfter = now.Add(4 * time.Minute) }),
		"begins at":        issue(func(c *C) { c.NotBefore, c.NotAfter = now.Add(25*time.Hour), now.Add(99*time.Hour) }),
		"than two years":   issue(func(c *C) { c.NotAfter = now.Add(3 * 366 * 24 * time.Hour) }),
		"hold together":    {good[0], root.Cert().Raw},
		"chain does not ":  {good[0], good[1], between.Cert().Raw},
		"is damaged: x509": {good[0], {1}},
	} {
		_, err := dpscert.Check(chain, key, "reg-0001", now)
		require.ErrorIs(t, err, transport.Protocol, want)
		require.ErrorIs(t, err, transport.ErrViolation)
		require.ErrorContains(t, err, want)
		require.True(t, errfilter.Retryable(err))
	}
}
