// Package dialer makes the connection below a protocol, for every transport that runs on standard Go:
// the socket, TLS with a client certificate, a tunnel such as WebSocket; and it says what the
// failures of all these mean.
package dialer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// Protocol is what goes over the connection, as far as this package must know.
type Protocol struct {
	// Name is that in errors, such as "mqtt".
	Name string
	// Secure and Plain are the ports, over TLS and without.
	Secure, Plain string
	// Kind says what an error of the protocol's own means, with a hint for its reader that may be
	// empty. It returns false for all others.
	Kind func(err error) (kind transport.Kind, hint string, ok bool)
}

// Options say how to connect. The transports document the fields, under the same names.
type Options struct {
	Protocol    *Protocol
	TLS         *tls.Config
	Plaintext   bool
	Certificate func(ctx context.Context) (*tls.Certificate, error)
	Addr        string
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	Tunnel      Tunnel
	// WriteTimeout is how long a write to the socket may not get on. The socket is a ProgressConn then. 0: no
	// limit.
	WriteTimeout time.Duration
	// ALPN are the protocols that are offered in TLS (RFC 7301), whatever TLS.NextProtos says. Nil:
	// http/1.1 for a Tunnel; without one TLS.NextProtos, less HTTP's.
	ALPN []string
}

// Resolve fills in defaults and returns an *Error of Kind Invalid about the first wrong field.
func (o *Options) Resolve() error {
	if o.Addr != "" {
		host, port, err := net.SplitHostPort(o.Addr)
		if n, numErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numErr != nil || n == 0 {
			return o.Protocol.Invalid("options: Addr " + strconv.Quote(o.Addr) + " is not host:port; give both, such as " +
				"\"gateway:" + o.Protocol.Secure + "\"")
		}
	}
	if o.Plaintext && o.Certificate != nil {
		return o.Protocol.Invalid("options: both Plaintext and Certificate are set; a certificate needs TLS")
	}
	if o.Dial == nil {
		o.Dial = dial
	}
	return nil
}

// dial is the default of Options.Dial. All connections share the net.Dialer, which has 160 bytes.
var dial = new(net.Dialer).DialContext

// Target is where to connect to.
func (o *Options) Target(creds *transport.Credentials) string {
	if o.Addr != "" {
		return o.Addr
	}
	port := o.Protocol.Secure
	switch {
	case o.Tunnel != nil:
		port = o.Tunnel.Port(!o.Plaintext)
	case o.Plaintext:
		port = o.Protocol.Plain
	}
	return net.JoinHostPort(creds.DialHost(), port)
}

// alpn is what to offer in TLS. Package net/http writes HTTP/2 into each config that it is given,
// so the caller's may have that from another client.
func (o *Options) alpn(callers []string) []string {
	switch {
	case o.ALPN != nil:
		return o.ALPN
	case o.Tunnel != nil:
		return []string{"http/1.1"}
	}
	return slices.DeleteFunc(slices.Clone(callers),
		func(name string) bool { return name == "h2" || strings.HasPrefix(name, "http/") })
}

// Config is TLS's for one connection. cert is what ClientCertificate returned.
func (o *Options) Config(creds *transport.Credentials, cert *tls.Certificate) *tls.Config {
	c := o.TLS.Clone() // nil stays nil
	if c == nil {
		c = new(tls.Config)
	}
	if c.ServerName == "" {
		c.ServerName = creds.DialHost()
	}
	if c.MinVersion == 0 {
		c.MinVersion = tls.VersionTLS12
	}
	if c.Time == nil {
		c.Time = creds.Time
	}
	c.NextProtos = o.alpn(c.NextProtos)
	if cert != nil {
		// Certificates would be passed over when the hub names other authorities, as it may for a
		// certificate that it knows by its thumbprint.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

// Open dials, does the TLS handshake and opens the tunnel. It returns the outer connection and the
// socket below, which are the same without TLS and tunnel. cert is what ClientCertificate returned.
// The error is a cause for Protocol.Error.
func (o *Options) Open(ctx context.Context, creds *transport.Credentials, cert *tls.Certificate) (outer,
	socket net.Conn, err error) {
	if failed := callback.Run("Options.Dial",
		func() { socket, err = o.Dial(ctx, "tcp", o.Target(creds)) }); failed != nil {
		return nil, nil, failed
	}
	if err != nil {
		return nil, nil, err
	}
	if o.WriteTimeout > 0 {
		socket = NewProgressConn(socket, o.WriteTimeout)
	}
	failed := callback.Run("Options.TLS or Options.Tunnel", func() { outer, err = o.secure(ctx, creds, cert, socket) })
	if failed != nil {
		err = failed
	}
	if err != nil {
		return nil, nil, err
	}
	return outer, socket, nil
}

// secure does the TLS handshake and opens the tunnel. On error the socket is closed.
func (o *Options) secure(ctx context.Context, creds *transport.Credentials, cert *tls.Certificate,
	socket net.Conn) (outer net.Conn, err error) {
	opened := false
	defer func() {
		if !opened { // also when a callback panicked or ended the goroutine
			_ = socket.Close()
		}
	}()
	outer = socket
	if !o.Plaintext {
		config := o.Config(creds, cert)
		secure := tls.Client(socket, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, clockError(err, config.Time())
		}
		outer = secure
	}
	if o.Tunnel != nil {
		if outer, err = o.openTunnel(ctx, creds, outer, socket); err != nil {
			return nil, err
		}
	}
	opened = true
	return outer, nil
}

// clockError returns err, with Kind ClockUnset when it is about a certificate that is not valid yet
// at now. The clock of a device is late far more often than the certificate of a hub is early, and
// waiting helps with both.
func clockError(err error, now time.Time) error {
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired && e.Cert != nil &&
		now.Before(e.Cert.NotBefore) {
		return &transport.Error{Kind: transport.ClockUnset, Err: err}
	}
	return err
}
