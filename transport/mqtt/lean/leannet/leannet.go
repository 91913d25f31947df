// Package leannet connects package lean on standard Go: TCP, TLS with the system's roots or one's
// own, client certificates, proxies, WebSocket.
//
//	client, err := device.New(creds, lean.New(leannet.Dialer(creds, nil), nil), nil)
//
// # Errors
//
// The failures of a dial have the same kinds as those of package mqtt: Invalid for wrong options;
// Network and Timeout when the hub was not reached, the TLS handshake was cut short, or ctx ended;
// Untrusted when the hub's certificate does not verify, or ClockUnset when that is because it is
// not valid yet by the device's clock; Unauthorized for a client certificate that was refused or
// has expired; Unsupported for TLS without common ground; Protocol for peers that speak something
// else; NotFound or Forbidden when a TLS alert says so; and what Options.Certificate, Options.Dial
// and Options.Tunnel return.
package leannet

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
)

// Options say how to connect. The zero value and nil mean all defaults: TLS to port 8883 of the
// credentials' host.
type Options struct {
	// TLS is the base of each connection's TLS settings; it is cloned. Its ServerName defaults to
	// Credentials.DialHost, its Time to the credentials' clock, its MinVersion to TLS 1.2. HTTP's
	// names in its NextProtos do not count, since package net/http writes them into each Config that
	// it is given: what is offered is the rest, and through a Tunnel http/1.1 alone. Nil: the system's
	// roots and these defaults.
	TLS *tls.Config
	// Plaintext leaves TLS out: for brokers on the same machine and for in-memory tests. Tokens cross
	// the wire readable.
	Plaintext bool
	// Certificate is asked for the client certificate at each dial, so that a renewed one is taken up:
	// CertificateFiles reads files, any crypto.Signer as the PrivateKey lets the key stay in a secure
	// element. It must end when ctx does. The certificate is sent whatever authorities the hub names.
	// One that cannot work (no key, another's key, expired) fails the dial before anything is sent. An
	// *transport.Error or transport.Kind that it returns keeps its Kind, any other error is
	// Unauthorized. Nil: what TLS says.
	Certificate func(ctx context.Context) (*tls.Certificate, error)
	// Addr is the "host:port" to connect to. The certificate is still verified for
	// Credentials.DialHost. Empty: DialHost, port 8883, with Plaintext 1883, with a Tunnel its own.
	Addr string
	// Dial makes the connection below TLS: the place for proxies (package netproxy), other network
	// interfaces and networks in memory. It must end when ctx does. An *transport.Error that it
	// returns keeps its Kind. Nil: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Tunnel carries MQTT within another protocol above TLS: package mqttws has WebSocket. A tunnel
	// that must answer by itself, as WebSocket must, costs the session one goroutine more. Nil: none.
	Tunnel Tunnel
	// WriteTimeout is how long a write may not get on before the connection counts as lost: the socket
	// takes nothing of it, and the peer's TCP acknowledges nothing (Linux). While the peer sends
	// something it has six times as long. Connections of Dial that have no method SetWriteBuffer, as a
	// *net.TCPConn has, are given it for each 16 KB. 0: 10 s.
	WriteTimeout time.Duration
}

// A Tunnel carries MQTT within another protocol. It is mqtt.Tunnel, see there.
type Tunnel = dialer.Tunnel

// Peer is what a Tunnel may want to know of the far end. It is mqtt.Peer, see there.
type Peer = dialer.Peer

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain and
// its key from PEM files at each dial, the certificate of the device first. Both may be the same
// file. While files that were read well once cannot be read or do not fit each other, as may be in
// the middle of a renewal, it returns what it read last. Before that its errors are of Kind
// Invalid; they name the file and show nothing of its content.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return dialer.CertificateFiles(certPEM, keyPEM)
}

const defaultWriteTimeout = 10 * time.Second

// Dialer returns a function for lean.New that connects to the hub of creds. Host, clock, and
// whether there is a token are all that is taken from creds. The options are copied; wrong ones are
// reported by each dial.
func Dialer(creds *transport.Credentials, o *Options) lean.Dial {
	var opt Options
	if o != nil {
		opt = *o
	}
	below := dialer.Options{
		Protocol: &endpoint.Protocol, TLS: opt.TLS, Plaintext: opt.Plaintext, Certificate: opt.Certificate, Addr: opt.Addr,
		Dial:   opt.Dial,
		Tunnel: opt.Tunnel,
	}
	opt.WriteTimeout = timespan.Cap(opt.WriteTimeout)
	wrong := below.Resolve()
	switch {
	case wrong != nil:
	case opt.WriteTimeout < 0:
		wrong = wire.Invalid("options: WriteTimeout is negative; give a positive duration, or 0 for 10s")
	case opt.WriteTimeout == 0:
		opt.WriteTimeout = defaultWriteTimeout
	}
	below.WriteTimeout = opt.WriteTimeout
	return func(ctx context.Context) (lean.Conn, error) {
		if wrong != nil {
			return nil, wrong
		}
		cert, err := below.ClientCertificate(ctx, creds)
		if err != nil {
			return nil, endpoint.Error(err)
		}
		outer, socket, err := below.Open(ctx, creds, cert)
		if err != nil {
			return nil, endpoint.Error(err)
		}
		return newConn(outer, socket), nil
	}
}
