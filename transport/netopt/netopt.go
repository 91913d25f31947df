// Package netopt has the network settings that all transports on standard Go share: mqtt,
// amqp, http and fileupload. Each of them refuses a setting that it has no use for. A program that
// lets its users choose the transport fills one Options and passes it to each:
//
//	network := netopt.Options{Dial: dial, Certificate: netopt.CertificateFiles("cert.pem", "key.pem")}
//	overMQTT := mqtt.New(&mqtt.Options{Network: network})
//	overHTTPS := http.New(&http.Options{Network: network})
//
// A refused setting has Kind Invalid: device.New returns the error. http and fileupload refuse
// Tunnel and WriteTimeout, so leave these unset in an Options that is for every transport.
package netopt

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"time"
)

// DialFunc makes a connection, as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Options say how to reach the hub. The zero value means: TLS to the transport's port on the
// credentials' host, directly, with the system's roots.
type Options struct {
	// TLS is the base of each connection's TLS settings; it is cloned. Its ServerName defaults to
	// Credentials.DialHost, its Time to the credentials' clock, its MinVersion to TLS 1.2. The names
	// of HTTP in NextProtos are removed, since package net/http adds them to each Config that it is
	// given; HTTPS and tunnels offer HTTP by themselves. Nil: the system's roots and these defaults.
	//
	// A process that connects to a host again resumes a TLS session, which saves certificates,
	// signatures, and with TLS 1.2 a round trip. A session is used only while the server's chain
	// verifies. SessionTicketsDisabled turns this off. So do, unless ClientSessionCache is set,
	// VerifyPeerCertificate and a client certificate, here or in Certificate: a resumption sends none,
	// and some brokers then refuse the device. Set ClientSessionCache for a broker that keeps the
	// certificate with the session. A session is used only with the Certificate it began with.
	TLS *tls.Config
	// RootCAs returns the roots that verify the server, in place of TLS.RootCAs: for roots that change
	// while the program runs, such as an edge gateway's. It is called before each connection is made,
	// with refused nil. When the server's certificate does not verify, it is called again with that
	// error; if it then returns other roots, the transport connects once more within the same dial.
	// Other roots do not help against a certificate for another host, so it is not called for that.
	//
	// With RootCAs, a certificate that does not verify is of Kind Unavailable, which is retryable: the
	// server or the source of the roots may be about to change. Without, it is Untrusted. RootCAs has
	// no effect on other certificates, such as a proxy's: one that does not verify is Untrusted.
	//
	// RootFiles reads files. RootCAs must return when ctx ends. It may be called concurrently. A
	// *transport.Error or transport.Kind that it returns keeps its Kind; any other error is Network,
	// and a nil pool is Invalid. Nil: the roots of TLS.
	RootCAs func(ctx context.Context, refused error) (*x509.CertPool, error)
	// Plaintext turns TLS off: for brokers on the same machine and for in-memory tests. Tokens cross
	// the network readable.
	Plaintext bool
	// Certificate returns the client certificate. It is called at each dial, so that a renewed
	// certificate is used from then on. Over MQTT and AMQP a client without a token connects anew
	// before its certificate expires. CertificateFiles reads files; with a crypto.Signer as
	// PrivateKey the key stays in a secure element. It must return when ctx ends. The certificate is
	// sent whatever authorities the hub names. A certificate that cannot work (no key, another key,
	// expired) fails the dial before anything is sent. A *transport.Error or transport.Kind that it
	// returns keeps its Kind; any other error is Unauthorized. Nil: the certificates of TLS.
	Certificate func(ctx context.Context) (*tls.Certificate, error)
	// Anonymous allows a connection over TLS without any proof of the identity, for brokers that take
	// all clients. Without it, credentials without token and user name need a certificate, so that a
	// forgotten one is noticed before anything is sent.
	Anonymous bool
	// Addr is the "host:port" to connect to. The hub's certificate is still verified for
	// Credentials.DialHost. Empty: DialHost and the port of the protocol or of the Tunnel.
	Addr string
	// Dial makes the connection below TLS: for other network interfaces, networks in memory, and
	// fixed proxies (package netproxy). It must return when ctx ends, and
	// keep the connection when ctx ends later. The deadline of ctx is that of the attempt, for a name
	// with several addresses. A *transport.Error that it returns keeps its Kind. Nil: Direct.
	Dial DialFunc
	// Proxy chooses a proxy at each dial: it returns the function that connects to the hub, which may
	// be direct, as Dial would connect. hub is a URL of scheme https (http with Plaintext) with the
	// host of the hub, and its port if that is not the scheme's. envproxy.Find reads HTTPS_PROXY and
	// NO_PROXY; netproxy.Choose takes any function that returns a proxy's URL. Nil: always direct.
	Proxy func(hub *url.URL, direct DialFunc) (DialFunc, error)
	// Tunnel carries the protocol within another one, above TLS: package websocket has
	// WebSocket. HTTPS has no tunnels. Nil: none.
	Tunnel Tunnel
	// WriteTimeout is how long a write may make no progress before the connection counts as lost.
	// It makes progress when the socket takes bytes, and on Linux when the peer's TCP acknowledges
	// bytes. A peer that takes nothing but lives is slow, not dead: the limit is six times
	// WriteTimeout while data arrives from it, and on Linux while it has answered a probe of its
	// closed window within three times WriteTimeout. Other systems do not tell: there the limit is
	// three times WriteTimeout. On a connection from Dial that is neither a socket (it has no
	// method SetWriteBuffer) nor around one, each write has this time in all; TLS splits its data
	// into writes of 16 KB. HTTPS bounds whole requests by Options.Timeout and refuses
	// WriteTimeout. 0: 10 s.
	WriteTimeout time.Duration
	// ProductInfo is added to the name of the client that the hub sees: DeviceClientType over MQTT,
	// com.microsoft:client-version over AMQP, the User-Agent over HTTPS. Empty:
	// nothing is added.
	ProductInfo string
}
