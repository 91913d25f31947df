package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// runProxy looks for a proxy and connects to it.
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
		rows := bad(err)
		rows[0].Hint = "the proxy " + proxy.Host + " of " + variable + " does not answer; correct it, or give -no-proxy; " +
			err.Error()
		return rows
	}
	if err := conn.Close(); err != nil {
		return bad(err)
	}
	return fine(proxy.Scheme + "://" + proxy.Host)
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

// runName resolves the service's name.
func runName(ctx context.Context, p *Probe, s subject) []Row {
	host, _ := split(s.site.address)
	if _, err := netip.ParseAddr(host); err == nil {
		return fine(host + ", no look-up needed")
	}
	lookup := p.Lookup
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	ctx, cancel := p.limit(ctx)
	defer cancel()
	begin := time.Now()
	addresses, err := lookup(ctx, host)
	if err == nil && len(addresses) == 0 {
		err = errors.New("the answer has no address")
	}
	if err != nil && p.proxied(s.site) {
		return warn("unknown here", "the proxy resolves the name; "+err.Error())
	}
	if err != nil {
		rows := bad(err)
		rows[0].Figure = "unknown"
		rows[0].Hint = "is the network up, and is " + host + " spelled right? " + err.Error()
		return rows
	}
	figure := fmt.Sprintf("%s in %s", strings.Join(addresses[:min(len(addresses), 3)], ", "), took(time.Since(begin)))
	for _, text := range addresses {
		a, err := netip.ParseAddr(text)
		if err == nil && (a.IsUnspecified() || a.IsLoopback()) && host != "localhost" {
			return warn(figure, "the name leads to this machine: a filter in the resolver, or an entry in the file hosts")
		}
	}
	return fine(figure)
}

// proxied reports whether connections to the site go through a proxy.
func (p *Probe) proxied(s *site) bool {
	if p.FindProxy == nil {
		return false
	}
	proxy, err := p.FindProxy(s.url())
	return err == nil && proxy != nil
}

// runPort connects to a port.
func runPort(ctx context.Context, p *Probe, s subject) []Row {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	begin := time.Now()
	conn, err := p.dial(ctx, s.site)
	if err != nil {
		rows := bad(err)
		if rows[0].Kind == transport.Network || rows[0].Kind == transport.Timeout {
			rows[0].Hint = "a firewall, or no server; " + s.site.elsewhere() + err.Error()
		}
		return rows
	}
	elapsed := time.Since(begin)
	p.reached[s.site.address] = elapsed
	if err := conn.Close(); err != nil {
		return bad(err)
	}
	if p.proxied(s.site) {
		return fine("in " + took(elapsed) + ", through the proxy")
	}
	return fine("in " + took(elapsed))
}

// answerLimit bounds an answer over HTTP.
const answerLimit = 64 << 10

// ask sends one request and returns the answer, without its body. It closes the connection.
func ask(ctx context.Context, conn net.Conn, method, host string) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := fmt.Fprintf(conn, "%s / HTTP/1.1\r\nHost: %s\r\nUser-Agent: hubline-doctor\r\nConnection: close\r\n\r\n",
		method, host)
	var response *http.Response
	if err == nil {
		response, err = http.ReadResponse(bufio.NewReader(io.LimitReader(conn, answerLimit)), &http.Request{Method: method})
	}
	_ = conn.Close() // the answer is here, or the error says more
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return response, err
}

// runRegistration asks the provisioning service for the hub.
func runRegistration(ctx context.Context, p *Probe, _ subject) []Row {
	ctx, cancel := context.WithTimeout(ctx, 6*p.Options.Timeout) // an assignment takes some polls
	defer cancel()
	begin := time.Now()
	assignment, err := p.Target.Register(ctx, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
	if err != nil {
		return bad(err)
	}
	return fine(fmt.Sprintf("%s at %s, in %s", assignment.DeviceID, assignment.Hub, took(time.Since(begin))))
}
