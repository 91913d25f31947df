package doctor

import (
	"net"
	"net/url"
	"strings"

	"github.com/hubline-iot/hubline/cmd/hubline/internal/target"
)

// site is a server's port.
type site struct {
	// name is that of its rows: the port or, if several servers have that port, the address.
	name string
	// server is the name of the rows about its host; empty if there is only one.
	server string
	// host is the name in the certificate, and address where to connect.
	host, address string
	plaintext     bool
}

// url is that for which the environment names a proxy. As for the transports, the host is the
// service's name, whatever the address is.
func (s *site) url() *url.URL {
	u := &url.URL{Scheme: "https", Host: s.host, Path: "/"}
	usual := "443"
	if s.plaintext {
		u.Scheme, usual = "http", "80"
	}
	if strings.Contains(s.host, ":") {
		u.Host = "[" + s.host + "]"
	}
	if _, port := split(s.address); port != usual {
		u.Host += ":" + port
	}
	return u
}

// elsewhere is advice for a port that nothing gets through to.
func (s *site) elsewhere() string {
	if _, port := split(s.address); port == "443" {
		return ""
	}
	return "transports over port 443 may get through (hubline help transports); "
}

// provisioningSite is the name of the provisioning service in rows.
const provisioningSite = "provisioning"

// provisioningSites has the provisioning service of a device that registers.
func provisioningSites(p *Probe) []subject {
	if p.Target.Identity == nil {
		return nil
	}
	host, address := p.Target.Provisioning()
	return []subject{{name: provisioningSite, site: &site{name: provisioningSite, host: host, address: address}}}
}

// registering is the provisioning service, for a step that happens once.
func registering(p *Probe) []subject {
	all := provisioningSites(p)
	for i := range all {
		all[i].name = ""
	}
	return all
}

// sites are the ports of the service, each once.
func sites(p *Probe) (all []subject) {
	known := map[string]bool{}
	for _, protocol := range p.Target.Protocols() {
		s := p.siteOf(protocol)
		if !known[s.address] {
			known[s.address] = true
			all = append(all, subject{name: s.name, site: s})
		}
	}
	return all
}

// servers are the hosts of the service, each once: a gateway and the hub, for one.
func servers(p *Probe) (all []subject) {
	known := map[string]bool{}
	for _, s := range sites(p) {
		if !known[s.site.server] {
			known[s.site.server] = true
			all = append(all, subject{name: s.site.server, site: s.site})
		}
	}
	return all
}

// siteOf returns the port of a transport.
func (p *Probe) siteOf(protocol *target.Protocol) *site {
	host, address, plaintext := p.Target.Endpoint(protocol)
	server, port := split(address)
	s := &site{name: port, host: host, address: address, plaintext: plaintext}
	for _, other := range p.Target.Protocols() {
		_, address, _ := p.Target.Endpoint(other)
		otherServer, otherPort := split(address)
		if otherServer == server {
			continue
		}
		s.server = server
		if otherPort == port {
			s.name = s.address
		}
	}
	return s
}

// split returns host and port of an address.
func split(address string) (host, port string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, address
	}
	return host, port
}

// webSite is the hub's port for HTTPS, which tells its time. With -transport it is asked as well,
// unless the transport leads to another server.
func webSite(p *Probe) []subject {
	if p.Target.URL != nil || p.Target.Creds == nil {
		return nil
	}
	for i := range target.Transports {
		protocol := &target.Transports[i]
		if protocol.Name != "http" {
			continue
		}
		web := p.siteOf(protocol)
		server, _ := split(web.address)
		for _, s := range sites(p) {
			if other, _ := split(s.site.address); other == server {
				return []subject{{site: web}}
			}
		}
	}
	return nil
}

// examined reports whether a site has rows of its own.
func (p *Probe) examined(s *site) bool {
	for _, other := range sites(p) {
		if other.site.address == s.address {
			return true
		}
	}
	return false
}
