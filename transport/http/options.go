package http

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/timespan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netproxy"
)

// Options are the settings of a Transport. The zero value and nil mean all defaults: TLS to port
// 443 of the credentials' host.
type Options struct {
	// TLS is the base of each connection's TLS settings; it is cloned. Its ServerName defaults to
	// Credentials.DialHost, its Time to the credentials' clock, its MinVersion to TLS 1.2; its
	// NextProtos do not count, HTTP2 does: net/http writes its own into each Config that it is given.
	// Nil: the system's roots and these defaults.
	TLS *tls.Config
	// Plaintext leaves TLS out: for hubs on the same machine and for in-memory tests. Tokens cross the
	// wire readable.
	Plaintext bool
	// Certificate is asked for the client certificate at each connection, so that a renewed one is
	// taken up: CertificateFiles reads files, any crypto.Signer as the PrivateKey lets the key stay in
	// a secure element. It must end when ctx does. An *transport.Error or transport.Kind that it
	// returns keeps its Kind, any other error is Unauthorized. Nil: what TLS says.
	Certificate func(ctx context.Context) (*tls.Certificate, error)
	// Addr is the "host:port" to connect to. The certificate is still verified for
	// Credentials.DialHost. Empty: DialHost, port 443, with Plaintext 80.
	Addr string
	// Dial makes the connection below TLS: the place for proxies (package netproxy), other network
	// interfaces and networks in memory. It must end when ctx does. An *transport.Error that it
	// returns keeps its Kind. Nil: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Proxy says which proxy to go through to the hub, nil for none, as the field of that name in
	// net/http's Transport does; http.ProxyFromEnvironment fits, and reads HTTPS_PROXY and NO_PROXY.
	// The schemes are those of package netproxy, which does the rest, over Dial if that is set. Nil:
	// none.
	Proxy func(*http.Request) (*url.URL, error)
	// HTTP2 allows HTTP/2 where the hub offers it. IoT Hub speaks HTTP/1.1.
	HTTP2 bool

	// Timeout bounds each request, a new connection for it included; those with a large body have a
	// second more for each 4 KiB. One that is not answered in it ends the session. A client waits for
	// as long, unless its device.Options.AckTimeout says less: a hub that has much to do answers late,
	// and what is sent again meanwhile is there twice. 0: 60 s.
	//
	// What a hub is never late with has half of it, at least 30 s: a new connection, and on Linux the
	// acknowledgement of packets (TCP_USER_TIMEOUT). When an answer is late by half of that time, a
	// second connection is tried; if it does not come about in the other half, the session ends. So a
	// dead network is found sooner than a hub is given up, after 30 s by default.
	Timeout time.Duration
	// IdleTimeout is how long a connection is kept open that is not used. The next request opens
	// another one, more cheaply with a TLS.ClientSessionCache. 0: 60 s.
	IdleTimeout time.Duration
	// PollInterval is the time between two looks for commands, as far as none came: after one the next
	// look is at once. A look is a request of its own, and hubs allow few of them: the service
	// recommends to look no more than every 25 minutes. 0: 25 minutes. At least 10 ms.
	PollInterval time.Duration
	// Batch is the most messages that travel in one request, up to 500: those that wait at the same
	// moment go together. 1: each goes alone. 0: 500.
	Batch int
	// NoProof leaves out the exchange by which Dial proves the credentials: the first message or look
	// does.
	NoProof bool

	// ProductInfo is added to the User-Agent. Empty: nothing.
	ProductInfo string
}

// maxBatch is the most messages that a hub takes in a batch.
const maxBatch = 500

// resolve returns a copy with the defaults in place, or an *Error of Kind Invalid about the first
// wrong field.
func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	for _, d := range [...]struct {
		name       string
		value      *time.Duration
		def, least time.Duration
	}{
		{"Timeout", &r.Timeout, 60 * time.Second, time.Millisecond},
		{"IdleTimeout", &r.IdleTimeout, 60 * time.Second, time.Millisecond},
		{"PollInterval", &r.PollInterval, 25 * time.Minute, 10 * time.Millisecond},
	} {
		*d.value = timespan.Cap(*d.value)
		switch {
		case *d.value == 0:
			*d.value = d.def
		case *d.value < d.least:
			return r, protocol.Invalid("options: " + d.name + " is " + d.value.String() + "; give " + d.least.String() +
				" at least, or 0 for " + d.def.String())
		}
	}
	switch {
	case r.Batch < 0 || r.Batch > maxBatch:
		return r, protocol.Invalid("options: Batch is " + strconv.Itoa(r.Batch) + "; give 1 to " + strconv.Itoa(maxBatch) +
			", or 0 for " + strconv.Itoa(maxBatch))
	case r.Batch == 0:
		r.Batch = maxBatch
	}
	if !plain(r.ProductInfo) {
		return r, protocol.Invalid("options: ProductInfo " + strconv.Quote(r.ProductInfo) +
			" cannot go into a header; give printable ASCII")
	}
	if r.Dial == nil {
		r.Dial = new(net.Dialer).DialContext
	}
	below := dialer.Options{Protocol: &protocol, Plaintext: r.Plaintext, Certificate: r.Certificate, Addr: r.Addr,
		Dial: r.Dial}
	return r, below.Resolve()
}

// silence is for how long the network may give no sign of life where a hub would: in it a
// connection comes about, and what was sent is acknowledged.
func (o *Options) silence() time.Duration {
	return max(o.Timeout/2, min(o.Timeout, 30*time.Second))
}

// scheme is that of the hub's address.
func (o *Options) scheme() string {
	if o.Plaintext {
		return "http"
	}
	return "https"
}

// below is how to connect.
func (o *Options) below(creds *transport.Credentials) (*dialer.Options, error) {
	w := &dialer.Options{Protocol: &protocol, TLS: o.tls(), ALPN: []string{"http/1.1"}, Plaintext: o.Plaintext,
		Certificate: o.Certificate, Addr: o.Addr, Dial: o.Dial}
	if o.HTTP2 {
		w.ALPN = []string{"h2", "http/1.1"}
	}
	if o.Proxy == nil {
		return w, nil
	}
	host := creds.DialHost()
	request := &http.Request{Method: http.MethodGet, Host: host, Header: http.Header{}, URL: &url.URL{Scheme: o.scheme(),
		Host: host, Path: "/"}}
	var proxy *url.URL
	var err error
	failed := callback.Run("Options.Proxy", func() { proxy, err = o.Proxy(request) })
	switch {
	case failed != nil:
		return nil, failed
	case err != nil:
		// the cause may show a password
		return nil, protocol.Invalid("options: Proxy does not say which proxy to use; check HTTPS_PROXY and its like")
	case proxy == nil:
		return w, nil
	}
	w.Dial, err = netproxy.New(proxy.String(), &netproxy.Options{Dial: o.Dial})
	return w, err
}

// tls is the base of TLS's settings. Records are full from the beginning: small ones help pages to
// show up early, and cost batches a call each.
func (o *Options) tls() *tls.Config {
	c := o.TLS.Clone()
	if c == nil {
		c = new(tls.Config)
	}
	c.DynamicRecordSizingDisabled = true
	return c
}

// agent is the User-Agent.
func (o *Options) agent() string {
	return strings.TrimSpace("Hubline (" + runtime.Version() + "; " + runtime.GOOS + "; " + runtime.GOARCH + ") " +
		o.ProductInfo)
}

// CertificateFiles returns a function for Options.Certificate that reads a certificate chain and
// its key from PEM files at each connection, the certificate of the device first. Both may be the
// same file. While files that were read well once cannot be read or do not fit each other, as may
// be in the middle of a renewal, it returns what it read last. Before that its errors are of Kind
// Invalid; they name the file and show nothing of its content.
func CertificateFiles(certPEM, keyPEM string) func(context.Context) (*tls.Certificate, error) {
	return dialer.CertificateFiles(certPEM, keyPEM)
}
