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
	"strings"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

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
		if classic := strings.Replace(host, ".device.", ".", 1); classic != host {
			rows[0].Hint = "not every hub has a name for TLS 1.3: is it " + classic + "? " + rows[0].Hint
		}
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

// runPort connects to a port.
func runPort(ctx context.Context, p *Probe, s subject) []Row {
	ctx, cancel := p.limit(ctx)
	defer cancel()
	begin := time.Now()
	conn, err := p.dial(ctx, s.site)
	if err != nil {
		rows := bad(err)
		_, ofProxy := OfProxy(err)
		switch {
		case ofProxy:
			rows[0].Hint = s.site.elsewhere() + rows[0].Hint
		case p.proxied(s.site):
			rows[0].Hint = "the proxy gives no answer for this port; " + err.Error()
		case rows[0].Kind == transport.Network || rows[0].Kind == transport.Timeout:
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
func runRegistration(ctx context.Context, p *Probe, s subject) []Row {
	limit, cancel := context.WithTimeout(ctx, 6*p.Options.Timeout) // an assignment takes some polls
	defer cancel()
	begin := time.Now()
	assignment, err := p.Target.Register(limit, &provisioning.Options{Policy: retrypolicy.NoRetry{}})
	if err != nil {
		return p.otherwise(ctx, bad(err), s.site, speaksHTTP)
	}
	return fine(fmt.Sprintf("%s at %s, in %s", assignment.DeviceID, assignment.Hub, took(time.Since(begin))))
}
