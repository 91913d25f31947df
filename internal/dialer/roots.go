package dialer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// dialWithRoots is Dial with Network.RootCAs. It connects twice if the server's certificate does
// not verify and there are other roots by then.
func (d *Dialer) dialWithRoots(ctx context.Context, creds *transport.Credentials, cert *tls.Certificate) (outer,
	socket net.Conn, err error) {
	roots, err := d.roots(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	outer, socket, err = d.dialOnce(ctx, creds, cert, roots)
	if !unverified(err) {
		return outer, socket, err
	}
	if newer, failed := d.newerRoots(ctx, roots, err); failed != nil {
		return nil, nil, failed
	} else if newer != nil {
		outer, socket, err = d.dialOnce(ctx, creds, cert, newer)
	}
	if unverified(err) {
		err = notVerifiedYet(err)
	}
	return outer, socket, err
}

// roots calls Network.RootCAs. The error has a Kind, or is that of an ended ctx.
func (d *Dialer) roots(ctx context.Context, refused error) (roots *x509.CertPool, err error) {
	err = callback.Call("Options.RootCAs", func() (err error) {
		roots, err = d.Network.RootCAs(ctx, refused)
		return err
	})
	switch kind := transport.KindOf(err); {
	case err == nil && roots == nil:
		return nil, d.Protocol.Invalid("options: RootCAs returned no roots; return a pool, or an error")
	case err == nil:
		return roots, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case transport.Find(err) != nil:
		return nil, err
	case kind != transport.Unknown:
		return nil, rootsError(kind, err)
	default:
		return nil, rootsError(transport.Network, err)
	}
}

// newerRoots asks for roots after refused. It returns nil if they are the former ones, or if no
// roots can help.
func (d *Dialer) newerRoots(ctx context.Context, former *x509.CertPool, refused error) (*x509.CertPool, error) {
	if _, otherHost := errors.AsType[x509.HostnameError](refused); otherHost {
		return nil, nil
	}
	newer, err := d.roots(ctx, refused)
	switch {
	case err != nil:
		e := d.Protocol.Error(err)
		e.Err = &noRootsError{refused, e.Err}
		return nil, e
	case newer.Equal(former):
		return nil, nil
	}
	return newer, nil
}

// noRootsError is a failed verification after which newer roots were not available.
type noRootsError struct{ refused, why error }

func (e *noRootsError) Error() string {
	return e.refused.Error() + "; newer roots are not available: " + e.why.Error()
}

func (e *noRootsError) Unwrap() []error { return []error{e.why, e.refused} }

// handshakeError marks the failure of the TLS handshake with the server, as opposed to one with a
// proxy or within a tunnel.
type handshakeError struct{ error }

func (e *handshakeError) Error() string { return "TLS handshake: " + e.error.Error() }
func (e *handshakeError) Unwrap() error { return e.error }

// InHandshake reports whether err is the failure of the TLS handshake with the server.
func InHandshake(err error) bool {
	_, is := errors.AsType[*handshakeError](err)
	return is
}

// unverified reports whether err is about the server's certificate, which did not verify.
func unverified(err error) bool {
	handshake, ok := errors.AsType[*handshakeError](err)
	if !ok {
		return false
	}
	_, ok = errors.AsType[*tls.CertificateVerificationError](handshake)
	return ok
}

// notVerifiedYet makes a failed verification retryable. A clock that is not set stays that.
func notVerifiedYet(err error) error {
	if transport.Find(err) != nil {
		return err
	}
	_, hint, _ := neterr.Explain(err)
	return &transport.Error{Kind: transport.Unavailable, Err: &hintError{err, hint + "; retryable, because roots and " +
		"certificate may change while Options.RootCAs is set"}}
}

func rootsError(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpDial,
		Err: &labelError{"roots of the server: ", cause}}
}

// labelError prefixes the text of a cause.
type labelError struct {
	label string
	error
}

func (e *labelError) Error() string { return e.label + e.error.Error() }
func (e *labelError) Unwrap() error { return e.error }
