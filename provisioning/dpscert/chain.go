package dpscert

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// Request returns a signing request in DER (PKCS #10), for provisioning.Options.CSR. Its common
// name is the registration id, as the service requires. The error is of Kind Invalid.
func Request(registrationID string, key crypto.Signer) ([]byte, error) {
	if key == nil {
		return nil, badRequest("the key is nil; give the device's private key", nil)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: registrationID}}, key)
	if err = scrub.Cause(err); err != nil { // of the key
		return nil, badRequest("the signing request cannot be made: "+err.Error(), err)
	}
	return der, nil
}

// Certificate returns a function for netopt.Options.Certificate, with an issued chain (leaf first,
// in DER) and the key that signed the request. The function fails with Kind Unauthorized if the
// chain is empty or damaged, or if its leaf belongs to another key, so that package dpstransport
// registers again. A nil key is Invalid.
func Certificate(chain [][]byte, key crypto.Signer) func(context.Context) (*tls.Certificate, error) {
	cert, err := certificate(chain, key)
	return func(context.Context) (*tls.Certificate, error) { return cert, err }
}

func certificate(chain [][]byte, key crypto.Signer) (*tls.Certificate, error) {
	switch {
	case key == nil:
		return nil, badRequest("the key is nil; give the device's private key", nil)
	case len(chain) == 0:
		return nil, useless("the issued chain is empty; register with a signing request", nil)
	}
	cert := &tls.Certificate{Certificate: chain, PrivateKey: key}
	for i, der := range chain {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, useless("the issued chain is damaged: "+scrub.Peer(err.Error()), err)
		}
		if i == 0 {
			cert.Leaf = parsed
		}
	}
	public, ok := cert.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, useless("the issued certificate belongs to another key; register again with a signing request", nil)
	}
	return cert, nil
}

const (
	// minLeft is the shortest remaining life of a new certificate.
	minLeft = 5 * time.Minute
	// maxLife is the longest life of a certificate. The services issue certificates for up to 90 days.
	maxLife = 2 * 366 * 24 * time.Hour
	// maxAhead is how far in the future a certificate may begin: clocks differ.
	maxAhead = 24 * time.Hour
	// maxChain and maxDER bound an issued chain, and each certificate of it.
	maxChain = 16
	maxDER   = 16 << 10
)

// Check checks a chain that a service has just issued, and returns the certificate for it. The
// certificate must be one for the key, for clients and with name as its common name. Each
// certificate must be signed by the next one. The life of the first must include the next 5
// minutes, begin at most a day from now and not exceed two years. The error is of Kind Invalid for
// a nil key. Otherwise it is of Kind Protocol and wraps transport.ErrViolation: the service may do
// better next time.
func Check(chain [][]byte, key crypto.Signer, name string, now time.Time) (*tls.Certificate, error) {
	if key == nil {
		return nil, badRequest("the key is nil; give the device's private key", nil)
	}
	if len(chain) > maxChain || slices.ContainsFunc(chain, func(der []byte) bool { return len(der) > maxDER }) {
		return nil, badChain("the issued chain is too large")
	}
	cert, err := certificate(chain, key)
	if err != nil {
		return nil, badChain(transport.Find(err).Err.Error())
	}
	leaf := cert.Leaf
	switch {
	case leaf.Subject.CommonName != name:
		return nil, badChain("the issued certificate has another common name")
	case leaf.IsCA || !forClients(leaf):
		return nil, badChain("the issued certificate is not one for clients")
	case leaf.NotAfter.Before(now.Add(minLeft)):
		return nil, badChain("the issued certificate ends at " + leaf.NotAfter.UTC().Format(time.RFC3339))
	case leaf.NotBefore.After(now.Add(maxAhead)):
		return nil, badChain("the issued certificate begins at " + leaf.NotBefore.UTC().Format(time.RFC3339))
	case leaf.NotAfter.Sub(leaf.NotBefore) > maxLife:
		return nil, badChain("the issued certificate is valid for more than two years")
	}
	for child := leaf; len(chain) > 1; chain = chain[1:] {
		parent, err := x509.ParseCertificate(chain[1])
		if err == nil {
			err = child.CheckSignatureFrom(parent)
		}
		if err != nil {
			return nil, badChain("the issued chain does not hold together: " + scrub.Peer(err.Error()))
		}
		child = parent
	}
	return cert, nil
}

// forClients reports whether a certificate may authenticate a client.
func forClients(c *x509.Certificate) bool {
	return len(c.ExtKeyUsage) == 0 && len(c.UnknownExtKeyUsage) == 0 ||
		slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
}

// badChain returns the error for a chain that is not what was asked for.
func badChain(text string) *transport.Error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpIssue,
		Err: &explained{text, transport.ErrViolation}}
}

func badRequest(text string, cause error) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpRegister, Err: &explained{text, cause}}
}

// useless returns the error for a chain that does not prove the identity.
func useless(text string, cause error) *transport.Error {
	return &transport.Error{Kind: transport.Unauthorized, Scope: transport.ScopeConnection, Op: transport.OpRegister,
		Err: &explained{text, cause}}
}

type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }
