// Package dpscert makes certificate signing requests for registrations, and client certificates
// from the chains that the provisioning service issues. The private key stays where it is: any
// crypto.Signer will do.
//
//	csr, err := dpscert.Request("thermometer-1", key)
//	client, err := provisioning.New(id, carrier, &provisioning.Options{CSR: csr})
//	assignment, err := client.Register(ctx)
//	network.Certificate = dpscert.Certificate(assignment.Chain, key)
package dpscert

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"

	"github.com/hubline-iot/hubline/transport"
)

// Request returns a signing request in DER (PKCS #10), for provisioning.Options.CSR. Its common
// name is the registration id, as the service requires. The error is of Kind Invalid.
func Request(registrationID string, key crypto.Signer) ([]byte, error) {
	if key == nil {
		return nil, invalid("the key is nil; give the device's private key", nil)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: registrationID}}, key)
	if err != nil {
		return nil, invalid("the signing request cannot be made: "+err.Error(), err)
	}
	return der, nil
}

// Certificate returns a function for netopt.Options.Certificate, with an issued chain (leaf first,
// in DER) and the key that signed the request. The function fails with Kind Invalid if the chain is
// empty or damaged, or if its leaf belongs to another key.
func Certificate(chain [][]byte, key crypto.Signer) func(context.Context) (*tls.Certificate, error) {
	cert, err := certificate(chain, key)
	return func(context.Context) (*tls.Certificate, error) { return cert, err }
}

func certificate(chain [][]byte, key crypto.Signer) (*tls.Certificate, error) {
	switch {
	case key == nil:
		return nil, invalid("the key is nil; give the device's private key", nil)
	case len(chain) == 0:
		return nil, invalid("the issued chain is empty; register with a signing request", nil)
	}
	cert := &tls.Certificate{Certificate: chain, PrivateKey: key}
	for i, der := range chain {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, invalid("the issued chain is damaged: "+err.Error(), err)
		}
		if i == 0 {
			cert.Leaf = parsed
		}
	}
	public, ok := cert.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	if !ok || !public.Equal(key.Public()) {
		return nil, invalid("the issued certificate belongs to another key; register again with a signing request", nil)
	}
	return cert, nil
}

func invalid(text string, cause error) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpRegister, Err: &explained{text, cause}}
}

type explained struct {
	text  string
	cause error
}

func (e *explained) Error() string { return e.text }
func (e *explained) Unwrap() error { return e.cause }
