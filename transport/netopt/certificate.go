package netopt

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// ClientCertificate calls Certificate, which must be set, and checks that the handshake can use the
// result. now is the device's clock. The result has a Leaf. The error is a *transport.Error.
// Transports call it.
func (o *Options) ClientCertificate(ctx context.Context, now func() time.Time) (*tls.Certificate, error) {
	var readErr error
	var cert *tls.Certificate
	err := callback.Call("Options.Certificate", func() (err error) {
		cert, err = o.Certificate(context.WithValue(ctx, readErrorKey{}, &readErr))
		return err
	})
	switch kind := transport.KindOf(err); {
	case err == nil:
	case transport.Find(err) != nil:
		return nil, err
	case kind != transport.Unknown:
		return nil, certificateError(kind, err)
	default:
		return nil, certificateError(transport.Unauthorized, err)
	}
	if cert == nil || len(cert.Certificate) == 0 {
		return nil, certificateError(transport.Invalid, errors.New("there is none"))
	}
	leaf := cert.Leaf
	if leaf == nil {
		if leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
			return nil, certificateError(transport.Invalid, err)
		}
		parsed := *cert
		parsed.Leaf, cert = leaf, &parsed
	}
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, certificateError(transport.Invalid, errors.New("it has no private key that can sign"))
	}
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !public.Equal(key.Public()) {
		return nil, certificateError(transport.Invalid, errors.New("the private key belongs to another certificate"))
	}
	// The hub judges a certificate that is not valid yet: the device's clock may be behind.
	if leaf.NotAfter.Before(now()) {
		text := "it expired at " + leaf.NotAfter.UTC().Format(time.RFC3339) + "; renew it, or check the clock"
		if readErr != nil {
			return nil, certificateError(transport.Unauthorized, &labelError{text + "; there may be a newer one, but: ",
				readErr})
		}
		return nil, certificateError(transport.Unauthorized, errors.New(text))
	}
	return cert, nil
}

func certificateError(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpDial,
		Err: &labelError{"client certificate: ", cause}}
}

// labelError prefixes the text of an error.
type labelError struct {
	label string
	error
}

func (e *labelError) Error() string { return e.label + e.error.Error() }
func (e *labelError) Unwrap() error { return e.error }
