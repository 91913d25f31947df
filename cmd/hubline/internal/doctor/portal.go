package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/hubline-iot/hubline/transport"
)

// refused are the errors of a port without a server: that of Unix, and that of Windows.
var refused = []error{syscall.ECONNREFUSED, syscall.Errno(10061)}

func isRefused(err error) bool {
	for _, e := range refused {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// runPortal asks for a page at port 80 of the service, where hubs and brokers have none: a captive
// portal answers in their place.
func runPortal(ctx context.Context, p *Probe, s subject) []Row {
	if p.proxied(s.site) {
		return []Row{{Mark: Skipped, Figure: "not tried", Hint: "the proxy connects, not this device"}}
	}
	ctx, cancel := p.limit(ctx)
	defer cancel()
	host, _ := split(s.site.address)
	conn, err := p.direct()(ctx, "tcp", net.JoinHostPort(host, "80"))
	if isRefused(err) {
		return fine("none seen: port 80 is closed")
	}
	if err != nil {
		return unanswered(err)
	}
	response, err := ask(ctx, conn, http.MethodGet, s.site.host)
	if err != nil {
		return unanswered(err)
	}
	rows := p.answered(response, s.site.host, host)
	if rows[0].Mark == Bad && p.trusted(s.site.server) {
		return warn(rows[0].Figure, "a captive portal answers here, and lets the device through to the service: it is "+
			"logged in or exempted, which may end")
	}
	return rows
}

// trusted reports whether TLS with all ports of a server was as it should be.
func (p *Probe) trusted(server string) bool {
	for _, s := range sites(p) {
		if s.site.server == server && (s.site.plaintext || p.failed([]string{"tls"}, s) != "") {
			return false
		}
	}
	return true
}

func unanswered(err error) []Row {
	return []Row{{Mark: Skipped, Figure: "no answer", Hint: "whether there is a portal is not known; " + err.Error()}}
}

const loginHelp = "a captive portal answers: open a web page on this network and log in, or get the device exempted"

// answered judges an answer at port 80 of a service with these names. Hubs have no pages. A broker
// may have a web server beside it, which may send to its own pages alone.
func (p *Probe) answered(response *http.Response, names ...string) []Row {
	status := response.StatusCode
	figure := fmt.Sprintf("status %d", status)
	location, _ := response.Location()
	redirect := status >= 300 && status < 400
	switch {
	case status == http.StatusNetworkAuthenticationRequired:
		return wrong(transport.Network, figure, loginHelp)
	case redirect && isSecure(location) && isOf(location, names):
	case redirect && location != nil && location.Hostname() != "" && !isOf(location, names):
		return wrong(transport.Network, fmt.Sprintf("redirected to %.100q", location.Hostname()), loginHelp)
	case redirect:
		return p.page("redirected, " + figure)
	case status < 300:
		return p.page("a page, " + figure)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return warn(figure, "a filter of the network or a web server answers, or "+loginHelp)
	}
	return fine("none seen: " + figure)
}

// page returns the row of a page, or of the way to one.
func (p *Probe) page(figure string) []Row {
	if p.Target.URL == nil {
		return wrong(transport.Network, figure, loginHelp)
	}
	return warn(figure, "a web server beside the broker, or "+loginHelp)
}

func isSecure(u *url.URL) bool {
	return u != nil && u.Scheme == "https" && (u.Port() == "" || u.Port() == "443")
}

// isOf reports whether a URL is of a host with one of the names.
func isOf(u *url.URL, names []string) bool {
	for _, name := range names {
		if strings.EqualFold(u.Hostname(), name) {
			return true
		}
	}
	return false
}
