package dialer

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain and
// its key from PEM files at each dial, the certificate of the device first. Both may be the same
// file. While files that were read well once cannot be read or do not fit each other, as may be in
// the middle of a renewal, it returns what it read last; when that has expired, the dial's error
// also says what is wrong with the files. Before that its errors are of Kind Invalid; they name the
// file, or both, and show nothing of its content. The function is safe for concurrent use.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return certificateFiles(certPEM, keyPEM, tls.LoadX509KeyPair)
}

func certificateFiles(certPEM, keyPEM string, load func(certPEM, keyPEM string) (tls.Certificate, error)) func(
	context.Context) (*tls.Certificate, error) {
	// held while the files are read, so that none of two dials at a time puts an older certificate
	// over a newer one
	var mu sync.Mutex
	var last *tls.Certificate
	return func(ctx context.Context) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		cert, err := load(certPEM, keyPEM)
		if err == nil {
			last = &cert
			return last, nil
		}
		if _, named := err.(*fs.PathError); !named {
			err = &labelError{certPEM + " with key " + keyPEM + ": ", err}
		}
		if last == nil {
			return nil, certificateError(transport.Invalid, err)
		}
		if why, ok := ctx.Value(fallbackKey{}).(*error); ok {
			*why = err
		}
		return last, nil
	}
}

// fallbackKey is the context's key for a *error, in which CertificateFiles leaves why it returned
// what it read last. The function may be wrapped in one of the user's, so there is no other way to
// tell.
type fallbackKey struct{}

// ClientCertificate asks for the client certificate, nil if there is none to be asked for, and
// checks that the handshake can do with it.
func (o *Options) ClientCertificate(ctx context.Context, creds *transport.Credentials) (*tls.Certificate, error) {
	if o.Certificate == nil {
		if !o.Plaintext && creds.Sign == nil && creds.Token == nil && !o.HasCertificate() {
			return nil, o.Protocol.Invalid("nothing proves the identity: credentials without Sign and Token need a " +
				"Certificate in the options")
		}
		return nil, nil
	}
	var fallback error
	var cert *tls.Certificate
	var err error
	if failed := callback.Run("Options.Certificate",
		func() { cert, err = o.Certificate(context.WithValue(ctx, fallbackKey{}, &fallback)) }); failed != nil {
		cert, err = nil, failed
	}
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
	}
	key, ok := cert.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, certificateError(transport.Invalid, errors.New("it has no private key that can sign"))
	}
	if public, ok := leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }); ok && !public.Equal(key.Public()) {
		return nil, certificateError(transport.Invalid, errors.New("the private key belongs to another one"))
	}
	if leaf.NotAfter.Before(creds.Time()) {
		// one that is not valid yet is left to the hub: our clock may be a little behind
		text := "it expired at " + leaf.NotAfter.UTC().Format(time.RFC3339) + "; renew it, or check the clock"
		if fallback != nil {
			return nil, certificateError(transport.Unauthorized, &labelError{text + "; there may be a newer one, but: ",
				fallback})
		}
		return nil, certificateError(transport.Unauthorized, errors.New(text))
	}
	return cert, nil
}

func certificateError(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpDial,
		Err: &labelError{"client certificate: ", cause}}
}

// HasCertificate reports whether a client certificate is at hand.
func (o *Options) HasCertificate() bool {
	return o.Certificate != nil || o.TLS != nil && (len(o.TLS.Certificates) > 0 || o.TLS.GetClientCertificate != nil)
}

// labelError says what a cause is about.
type labelError struct {
	label string
	error
}

func (e *labelError) Error() string { return e.label + e.error.Error() }
func (e *labelError) Unwrap() error { return e.error }
