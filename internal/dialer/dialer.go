// Package dialer makes the connection below a protocol, for every transport on standard Go: the
// socket, the proxy, TLS with a client certificate, and a tunnel such as WebSocket. It also maps
// the failures of all of these to Kinds.
package dialer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Protocol describes the protocol above the connection.
type Protocol struct {
	// Name is the protocol's name in errors, such as "mqtt".
	Name string
	// Secure and Plain are its ports, with TLS and without.
	Secure, Plain string
	// HTTP means that each message is a request with its own time-out. There are no tunnels and no
	// write time-outs.
	HTTP bool
	// Kind maps an error of the protocol itself and may add a hint for the reader. It returns false
	// for all other errors.
	Kind func(err error) (kind transport.Kind, hint string, ok bool)
}

// Dialer makes the connections of one transport.
type Dialer struct {
	Protocol *Protocol
	// Network holds the caller's options. Resolve sets their defaults.
	Network netopt.Options
	// Timeout is the deadline that the function Dial of Network gets, unless the context has an
	// earlier one. A net.Dialer divides it among the addresses of a name. 0: none.
	Timeout time.Duration
	// ALPN are the protocols offered in TLS (RFC 7301), in place of Network.TLS.NextProtos. Nil:
	// http/1.1 for a tunnel, else NextProtos without the names of HTTP.
	ALPN []string
	// Wrap, if set, replaces each new socket: the connection below TLS, through the proxy.
	Wrap func(net.Conn) net.Conn
}

const defaultWriteTimeout = 10 * time.Second

// Resolve sets the defaults of Network. It returns a *transport.Error of Kind Invalid about the
// first wrong field.
func (d *Dialer) Resolve() error {
	o, p := &d.Network, d.Protocol
	if o.Addr != "" {
		host, port, err := net.SplitHostPort(o.Addr)
		if n, numErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || numErr != nil || n == 0 {
			return p.Invalid("options: Addr " + strconv.Quote(o.Addr) + " is not host:port; give both, such as " +
				"\"gateway:" + p.Secure + "\"")
		}
	}
	switch {
	case o.Plaintext && o.Certificate != nil:
		return p.Invalid("options: both Plaintext and Certificate are set; a certificate needs TLS")
	case o.Plaintext && o.RootCAs != nil:
		return p.Invalid("options: both Plaintext and RootCAs are set; roots need TLS")
	case p.HTTP && o.Tunnel != nil:
		return p.Invalid("options: Tunnel is set, but HTTPS has no tunnels; leave it nil")
	case p.HTTP && o.Anonymous:
		return p.Invalid("options: Anonymous is set, but HTTPS is for hubs, which take no client without proof; leave it " +
			"false")
	case p.HTTP && o.WriteTimeout != 0:
		return p.Invalid("options: WriteTimeout is set, but HTTPS bounds whole requests; leave it 0")
	case p.HTTP && strings.ContainsFunc(o.ProductInfo, func(r rune) bool { return r < ' ' || r > '~' }):
		return p.Invalid("options: ProductInfo " + strconv.Quote(o.ProductInfo) +
			" cannot go into a header; give printable ASCII")
	case o.WriteTimeout < 0:
		return p.Invalid("options: WriteTimeout is negative; give a positive duration, or 0 for " +
			defaultWriteTimeout.String())
	case !p.HTTP && o.WriteTimeout == 0:
		o.WriteTimeout = defaultWriteTimeout
	}
	o.WriteTimeout = times.Cap(o.WriteTimeout)
	if o.Dial == nil {
		o.Dial = netopt.Direct
	}
	return nil
}

// Target returns the address to connect to.
func (d *Dialer) Target(creds *transport.Credentials) string {
	if d.Network.Addr != "" {
		return d.Network.Addr
	}
	port := d.Protocol.Secure
	switch {
	case d.Network.Tunnel != nil:
		port = d.Network.Tunnel.Port(!d.Network.Plaintext)
	case d.Network.Plaintext:
		port = d.Protocol.Plain
	}
	return net.JoinHostPort(creds.DialHost(), port)
}

// URLHost returns host as it stands in a URL: an IPv6 address in brackets.
func URLHost(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// Scheme returns "https", or "http" with Plaintext.
func (d *Dialer) Scheme() string {
	if d.Network.Plaintext {
		return "http"
	}
	return "https"
}

// ClientCertificate returns the client certificate, nil when Network.Certificate is not set.
func (d *Dialer) ClientCertificate(ctx context.Context, creds *transport.Credentials) (*tls.Certificate, error) {
	if d.Network.Certificate != nil {
		return d.Network.ClientCertificate(ctx, creds.Time)
	}
	proof := creds.Sign != nil || creds.Token != nil || creds.UserName != "" || d.hasCertificate()
	if !proof && !d.Network.Plaintext && !d.Network.Anonymous {
		return nil, d.Protocol.Invalid("nothing proves the identity: credentials without Sign and Token need a " +
			"Certificate in the options; set Anonymous there if the broker takes any client")
	}
	return nil, nil
}

// hasCertificate reports whether the options have a client certificate.
func (d *Dialer) hasCertificate() bool {
	c := d.Network.TLS
	return d.Network.Certificate != nil || c != nil && (len(c.Certificates) > 0 || c.GetClientCertificate != nil)
}

// alpn returns the protocols to offer in TLS. The caller's list may contain HTTP/2 from another
// client: package net/http adds it to each Config that it is given.
func (d *Dialer) alpn(callers []string) []string {
	switch {
	case d.ALPN != nil:
		return d.ALPN
	case d.Network.Tunnel != nil:
		return []string{"http/1.1"}
	}
	return slices.DeleteFunc(slices.Clone(callers),
		func(name string) bool { return name == "h2" || strings.HasPrefix(name, "http/") })
}

// Config returns the TLS settings of one connection. cert is the result of ClientCertificate. roots
// replace those of Network.TLS unless they are nil.
func (d *Dialer) Config(creds *transport.Credentials, cert *tls.Certificate, roots *x509.CertPool) *tls.Config {
	c := d.Network.TLS.Clone() // nil stays nil
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
	if roots != nil {
		c.RootCAs = roots
	}
	c.NextProtos = d.alpn(c.NextProtos)
	resumable(c, cert)
	if cert != nil {
		// crypto/tls skips entries of Certificates whose issuer the hub does not name. A hub that knows
		// a certificate by its thumbprint may name others.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

// Dial connects the socket, does the TLS handshake and opens the tunnel. It returns the outer
// connection and the socket, which are the same without TLS and tunnel. cert is the result of
// ClientCertificate. The error is a cause for Protocol.Error.
func (d *Dialer) Dial(ctx context.Context, creds *transport.Credentials, cert *tls.Certificate) (outer,
	socket net.Conn, err error) {
	if d.Network.RootCAs != nil {
		return d.dialWithRoots(ctx, creds, cert)
	}
	return d.dialOnce(ctx, creds, cert, nil)
}

// dialOnce is Dial with these roots, nil for those of Network.TLS.
func (d *Dialer) dialOnce(ctx context.Context, creds *transport.Credentials, cert *tls.Certificate,
	roots *x509.CertPool) (outer, socket net.Conn, err error) {
	dial, err := d.dialFunc(creds)
	if err != nil {
		return nil, nil, err
	}
	limited, cancel := ctx, func() {}
	if d.Timeout > 0 {
		limited, cancel = context.WithTimeout(ctx, d.Timeout)
	}
	err = callback.Call("Options.Dial", func() (err error) {
		socket, err = dial(limited, "tcp", d.Target(creds))
		return err
	})
	cancel()
	if err == nil && socket == nil {
		err = d.Protocol.Invalid("options: Dial returned no connection; return one, or an error")
	}
	if err != nil {
		return nil, nil, err
	}
	if d.Wrap != nil {
		socket = d.Wrap(socket)
	}
	if d.Network.WriteTimeout > 0 {
		socket = NewProgressConn(socket, d.Network.WriteTimeout)
	}
	err = callback.Call("Options.TLS or Options.Tunnel", func() (err error) {
		outer, err = d.secure(ctx, creds, socket, cert, roots)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return outer, socket, nil
}

// dialFunc returns the function that connects to the hub: Network.Dial, over the proxy if
// Network.Proxy names one.
func (d *Dialer) dialFunc(creds *transport.Credentials) (netopt.DialFunc, error) {
	if d.Network.Proxy == nil {
		return d.Network.Dial, nil
	}
	hub := &url.URL{Scheme: d.Scheme(), Host: URLHost(creds.DialHost()), Path: "/"}
	if _, port, err := net.SplitHostPort(d.Target(creds)); err == nil && port != defaultPorts[hub.Scheme] {
		hub.Host += ":" + port
	}
	var dial netopt.DialFunc
	err := callback.Call("Options.Proxy", func() (err error) {
		dial, err = d.Network.Proxy(hub, d.Network.Dial)
		return err
	})
	_, panicked := err.(*callback.Error)
	switch {
	case panicked, transport.Find(err) != nil:
		return nil, err
	case err != nil || dial == nil: // the text of err may show a password
		return nil, d.Protocol.Invalid("options: Proxy returned no proxy; check HTTPS_PROXY and similar variables")
	}
	return dial, nil
}

var defaultPorts = map[string]string{"https": "443", "http": "80"}

// secure does the TLS handshake and opens the tunnel. It closes the socket on error.
func (d *Dialer) secure(ctx context.Context, creds *transport.Credentials, socket net.Conn, cert *tls.Certificate,
	roots *x509.CertPool) (outer net.Conn, err error) {
	opened := false
	defer func() {
		if !opened { // also if a callback panicked or ended the goroutine
			_ = socket.Close()
		}
	}()
	outer = socket
	if !d.Network.Plaintext {
		config := d.Config(creds, cert, roots)
		secure := tls.Client(socket, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, &handshakeError{ClockError(err, config.Time())}
		}
		outer = secure
	}
	if d.Network.Tunnel != nil {
		if outer, err = d.openTunnel(ctx, creds, outer, socket); err != nil {
			return nil, err
		}
	}
	opened = true
	return outer, nil
}

// ClockError adds Kind ClockUnset to the error for a certificate that is not valid yet. The cause
// is far more often a device's clock that is behind than a hub's certificate that is early, and
// waiting helps in both cases.
func ClockError(err error, now time.Time) error {
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired && e.Cert != nil &&
		now.Before(e.Cert.NotBefore) {
		return &transport.Error{Kind: transport.ClockUnset, Err: err}
	}
	return err
}
