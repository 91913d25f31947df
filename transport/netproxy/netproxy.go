// Package netproxy connects through HTTP CONNECT and SOCKS5 proxies, with user name and password.
// Its functions have the form of net.Dialer.DialContext, so they fit netopt.Options.Dial. TLS to
// the hub, and WebSocket, run end to end through the proxy.
//
//	dial, err := netproxy.New("http://user:password@proxy.local:3128", nil)
//	...
//	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Dial: dial}})
//
// The proxy resolves the hub's name. Package envproxy finds the proxy that the environment names
// (HTTPS_PROXY and so on).
//
// # Errors
//
// A refusal by a proxy is a *transport.StatusError (HTTP) or a *ReplyError (SOCKS5), with
// transport.ErrProxy in its chain, within an *transport.Error of this Kind:
//
//   - Unauthorized: HTTP 401 and 407; SOCKS5 rejects the user or requires one.
//   - Forbidden: HTTP 403, 405 and 451; SOCKS5 "not allowed".
//   - Timeout: HTTP 408 and 504.
//   - Throttled: HTTP 429.
//   - Unavailable: HTTP 500, 502, 503 and most other 5xx; a general failure of SOCKS5.
//   - Network: HTTP 511; SOCKS5 cannot reach the hub.
//   - Unsupported: HTTP 407 that does not offer Basic; HTTP 501 and 505; SOCKS5 commands and
//     addresses that are not supported.
//   - Protocol: HTTP 400, 404, redirections and the like; peers that are not proxies.
//
// Other HTTP statuses have the Kind that they have for all transports.
//
// A network failure on the connection to the proxy is reported unchanged, with the proxy's address.
// A proxy's certificate that does not verify is Untrusted, or ClockUnset when it is not valid yet.
// No error shows user name or password.
package netproxy

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// DialFunc makes a connection, as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Options are settings beyond the proxy's URL. The zero value and nil mean all defaults.
type Options struct {
	// Dial connects to the proxy; another proxy's DialFunc makes a chain. It must return when ctx
	// ends. Nil: netopt.Direct.
	Dial DialFunc
	// TLS is the base of the TLS configuration for a proxy of scheme "https"; it is cloned. Its
	// NextProtos is ignored, because only HTTP/1.1 is spoken. Nil: the system's roots.
	TLS *tls.Config
}

// New returns the function that connects through the proxy at rawURL,
// "scheme://[user:password@]host[:port]". Schemes are "http" (port 80), "https" (443: TLS to the
// proxy itself), "socks5" and "socks5h" (1080). User name and password are percent-encoded, as in
// every URL. Errors are of Kind Invalid and do not repeat the URL.
func New(rawURL string, o *Options) (DialFunc, error) {
	if o == nil {
		o = new(Options)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		// The cause would repeat it.
		return nil, invalid("is no URL; percent-encode the password: '%' is %25, a space is %20")
	}
	port, known := defaultPorts[u.Scheme]
	switch {
	case !known:
		return nil, invalid("has an unknown scheme; give http, https, socks5 or socks5h")
	case u.Hostname() == "":
		return nil, invalid("has no host")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, invalid("has a path, a query or a fragment; leave it out, and percent-encode the password: '/' is %2F, " +
			"'?' is %3F, '#' is %23, a space is %20")
	}
	if u.Port() != "" {
		port = u.Port()
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, invalid("has a wrong port; give 1 to 65535")
		}
	}
	p := &proxy{host: u.Hostname(), addr: net.JoinHostPort(u.Hostname(), port), dial: o.Dial}
	if p.dial == nil {
		p.dial = netopt.Direct
	}
	user := u.User.Username()
	password, _ := u.User.Password()
	switch u.Scheme {
	case "http", "https":
		if u.User != nil {
			if strings.Contains(user, ":") {
				return nil, invalid("has a user name with a colon, which Basic authentication cannot carry")
			}
			p.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
		}
		if u.Scheme == "https" {
			p.tls = o.TLS.Clone()
			if p.tls == nil {
				p.tls = new(tls.Config)
			}
			if p.tls.ServerName == "" {
				p.tls.ServerName = p.host
			}
			if p.tls.Time == nil {
				p.tls.Time = time.Now
			}
			p.tls.NextProtos = []string{"http/1.1"} // net/http may have added HTTP/2 to the caller's config
		}
		return p.connect, nil
	}
	if u.User != nil && (user == "" || len(user) > 255 || len(password) > 255) {
		return nil, invalid("has a user name or password that SOCKS5 cannot carry; give 1 to 255 bytes")
	}
	return p.socks(u.User != nil, user, password)
}

// Choose returns a function for netopt.Options.Proxy that connects through the proxy whose URL find
// returns, and directly when find returns nil. The URL is as for New.
func Choose(find func(hub *url.URL) (*url.URL, error)) func(hub *url.URL, direct DialFunc) (DialFunc, error) {
	return func(hub *url.URL, direct DialFunc) (DialFunc, error) {
		proxy, err := find(hub)
		if err != nil || proxy == nil {
			return direct, err
		}
		return New(proxy.String(), &Options{Dial: direct})
	}
}

var defaultPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

// proxy is the proxy of one New. It is immutable.
type proxy struct {
	host, addr    string
	dial          DialFunc
	tls           *tls.Config // nil: none
	authorization string      // secret
}

func (p *proxy) String() string   { return "proxy " + p.addr }
func (p *proxy) GoString() string { return p.String() }

// viaProxy returns the error for a failure of the connection to the proxy.
func (p *proxy) viaProxy(err error) error { return &proxyError{p.addr, err} }

// failed returns the error for a failure that the proxy reports.
func (p *proxy) failed(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpDial,
		Err: &refusal{proxyError{p.addr, scrub.Cause(cause)}}}
}

func invalid(what string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Op: transport.OpOpen, Err: errors.New("the proxy's URL " + what)}
}

// proxyError adds the proxy's address to an error.
type proxyError struct {
	addr string
	err  error
}

func (e *proxyError) Error() string { return "proxy " + e.addr + ": " + e.err.Error() }
func (e *proxyError) Unwrap() error { return e.err }

// refusal is an answer of the proxy.
type refusal struct{ proxyError }

func (e *refusal) Unwrap() []error { return []error{e.err, transport.ErrProxy} }
