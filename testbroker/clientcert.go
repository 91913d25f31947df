package testbroker

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// CertAuthority signs certificates of devices. Make it with [NewCertAuthority] and pass its
// certificate to [Hub.AddCA].
type CertAuthority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	chain [][]byte // certificates below the root, this one first
}

// NewCertAuthority makes a self-signed authority.
func NewCertAuthority(name string) *CertAuthority { return newAuthority(name, nil) }

// NewAuthority makes an authority whose certificate a signs.
func (a *CertAuthority) NewAuthority(name string) *CertAuthority { return newAuthority(name, a) }

func newAuthority(name string, parent *CertAuthority) *CertAuthority {
	template := clientTemplate(name, time.Time{}, time.Time{})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageCertSign, nil
	a := &CertAuthority{key: identity.NewKey()}
	if parent == nil {
		a.cert = identity.SignCert(template, template, a.key, a.key)
		return a
	}
	a.cert = identity.SignCert(template, parent.cert, a.key, parent.key)
	a.chain = append([][]byte{a.cert.Raw}, parent.chain...)
	return a
}

// Cert returns the certificate of the authority.
func (a *CertAuthority) Cert() *x509.Certificate { return a.cert }

// NewClientCert makes a certificate for a device, with its key and the authorities below the root.
// Zero times mean: from an hour ago, for twenty years.
func (a *CertAuthority) NewClientCert(commonName string, notBefore, notAfter time.Time) tls.Certificate {
	key := identity.NewKey()
	leaf := identity.SignCert(clientTemplate(commonName, notBefore, notAfter), a.cert, key, a.key)
	return tls.Certificate{Certificate: append([][]byte{leaf.Raw}, a.chain...), PrivateKey: key, Leaf: leaf}
}

// Issuer returns a function for [dpsdata.Enrollment.Issue]: it signs the key of a request with the
// name of the request, and returns the certificate with the authorities below the root. life is how
// long certificates are valid; zero means 30 days.
func (a *CertAuthority) Issuer(life time.Duration) func(*x509.CertificateRequest) ([][]byte, error) {
	return func(csr *x509.CertificateRequest) ([][]byte, error) {
		template := clientTemplate(csr.Subject.CommonName, time.Time{}, time.Now().Add(cmp.Or(life, 30*24*time.Hour)))
		der, err := x509.CreateCertificate(rand.Reader, template, a.cert, csr.PublicKey, a.key)
		if err != nil {
			return nil, err
		}
		return append([][]byte{der}, a.chain...), nil
	}
}

// NewClientCert makes a self-signed certificate for a device. Zero times mean: from an hour ago,
// for twenty years.
func NewClientCert(commonName string, notBefore, notAfter time.Time) tls.Certificate {
	key := identity.NewKey()
	template := clientTemplate(commonName, notBefore, notAfter)
	leaf := identity.SignCert(template, template, key, key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func clientTemplate(name string, notBefore, notAfter time.Time) *x509.Certificate {
	var serial [16]byte
	rand.Read(serial[:]) // never fails
	return &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[1:]),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    cmp.Or(notBefore, time.Now().Add(-identity.CertBackdate)),
		NotAfter:     cmp.Or(notAfter, time.Now().Add(identity.CertLife)),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}
