package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/transport"
)

// OfProxy reports whether err is an answer of a proxy, which says nothing about the service, and
// what helps.
func OfProxy(err error) (hint string, ok bool) {
	if !errors.Is(err, transport.ErrProxy) {
		return "", false
	}
	switch kindOf(err) {
	case transport.Unauthorized:
		return "the proxy wants a user name and a password, or other ones: write http://USER:PASSWORD@HOST:PORT into the " +
			"variable that names it", true
	case transport.Forbidden:
		return "the proxy does not allow this connection: ask who runs it to allow the service's name and port", true
	case transport.Unsupported:
		return "ask who runs the proxy for one that serves this device, or for a way around it", true
	case transport.Protocol:
		return "check host and port of the proxy", true
	default:
		return "the proxy answers, and does not get through to the service", true
	}
}

// runProxy looks for a proxy, connects to it, and asks it for each port of the service.
func runProxy(ctx context.Context, p *Probe, _ subject) []Row {
	if p.FindProxy == nil {
		return fine("not used: -no-proxy")
	}
	proxy, variable, err := p.proxy()
	switch {
	case err != nil:
		return wrong(transport.Invalid, "not a URL", variable+" has no valid URL; write http://HOST:PORT")
	case proxy == nil && p.ignored(variable):
		return warn("ignored", variable+" is not a URL, so programs connect directly; write http://HOST:PORT, or "+
			"remove it")
	case proxy == nil:
		return fine("none")
	case proxy.Hostname() == "" || proxyPorts[proxy.Scheme] == "":
		return wrong(transport.Invalid, "not usable", variable+" needs a host, and the scheme http, https, socks5 or "+
			"socks5h; write http://HOST:PORT")
	}
	ctx, cancel := p.limit(ctx)
	defer cancel()
	conn, err := p.direct()(ctx, "tcp", proxyAddress(proxy))
	if err != nil {
		return silentProxy(proxy, variable, "does not answer", err)
	}
	if err := conn.Close(); err != nil {
		return bad(err)
	}
	return p.passage(ctx, proxy, variable)
}

// silentProxy returns the row of a proxy that gives no answer.
func silentProxy(proxy *url.URL, variable, what string, err error) []Row {
	rows := bad(err)
	rows[0].Hint = "the proxy " + proxy.Host + " of " + variable + " " + what + "; correct it, or give -no-proxy; " +
		err.Error()
	return rows
}

// refusals are the kinds of answers that show that the proxy does not serve this device.
var refusals = []transport.Kind{transport.Unauthorized, transport.Forbidden, transport.Protocol}

// passage returns the row of a proxy that answers: for which ports of the service it connects.
func (p *Probe) passage(ctx context.Context, proxy *url.URL, variable string) []Row {
	var open, closed []string
	var refusal, silence error
	for _, s := range append(provisioningSites(p), sites(p)...) {
		if s.site.host == "" || !p.proxied(s.site) {
			continue
		}
		conn, err := p.dial(ctx, s.site)
		if err == nil {
			_ = conn.Close() // nothing was written
			open = append(open, s.name)
		} else if _, answered := OfProxy(err); !answered {
			silence = err
		} else if slices.Contains(refusals, kindOf(err)) {
			closed, refusal = append(closed, s.name), err
		}
	}
	figure := proxy.Scheme + "://" + proxy.Host
	switch {
	case refusal == nil && (silence == nil || len(open) > 0):
		return fine(figure)
	case refusal == nil:
		return silentProxy(proxy, variable, "takes connections and does not answer as a proxy does", silence)
	case len(open) == 0:
		return bad(refusal)
	}
	return warn(figure, fmt.Sprintf("the proxy connects to %s and not to %s; %v", strings.Join(open, ", "),
		strings.Join(closed, ", "), refusal))
}

// proxy returns the first proxy that one of the ports has, or nil, and the variable that names it.
func (p *Probe) proxy() (proxy *url.URL, variable string, err error) {
	variable = "HTTPS_PROXY"
	for _, s := range append(provisioningSites(p), sites(p)...) {
		if s.site.plaintext {
			variable = "HTTP_PROXY"
		}
		if s.site.host == "" {
			continue // the hub of a registration that has not been made
		}
		if proxy, err = p.FindProxy(s.site.url()); err != nil || proxy != nil {
			break
		}
	}
	return proxy, variable, err
}

// ignored reports whether the variable has a proxy that is not a URL. The search for proxies takes
// such a text for none.
func (p *Probe) ignored(variable string) bool {
	for _, name := range []string{variable, strings.ToLower(variable)} {
		if p.Getenv == nil || p.Getenv(name) == "" {
			continue
		}
		_, err := url.Parse(p.Getenv(name))
		_, withScheme := url.Parse("http://" + p.Getenv(name))
		return err != nil && withScheme != nil
	}
	return false
}

var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}

func proxyAddress(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), proxyPorts[u.Scheme])
}

// proxied reports whether connections to the site go through a proxy.
func (p *Probe) proxied(s *site) bool {
	if p.FindProxy == nil {
		return false
	}
	proxy, err := p.FindProxy(s.url())
	return err == nil && proxy != nil
}
