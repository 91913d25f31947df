package hub

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// IsName reports whether a host name is the hub's own or its other one.
func (h *Hub) IsName(host string) bool {
	return strings.EqualFold(host, h.Host) || host != "" && strings.EqualFold(host, identity.OtherName(h.Host))
}

// Profile returns the hub's connection profile, as a provisioning service tells it.
func (h *Hub) Profile() string {
	if h.MQTTv5 {
		return nextwire.ProfileMQTTv5
	}
	return nextwire.ProfileClassic
}

// Knows reports whether a host name, with or without a port, is a name of this hub, of its gateway,
// or of this machine.
func (h *Hub) Knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "" || h.IsName(host) || strings.EqualFold(host, h.FrontName()) ||
		slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
}

// IdentityOf parses "devices/{device}[/modules/{module}]/rest". Some clients percent-encode ids,
// and ids may contain percent signs. Therefore an id that is registered literally is taken
// literally.
func (h *Hub) IdentityOf(path string) (id identity.Identity, rest string, ok bool) {
	part := strings.Split(path, "/")
	if len(part) < 3 || !strings.EqualFold(part[0], "devices") {
		return id, "", false
	}
	raw := identity.Identity{Device: part[1]}
	part = part[2:]
	if len(part) >= 3 && strings.EqualFold(part[0], "modules") {
		raw.Module = part[1]
		part = part[2:]
	}
	rest = strings.Join(part, "/")
	if h.Registered(raw) {
		return raw, rest, true
	}
	device, err := url.PathUnescape(raw.Device)
	if err != nil {
		return raw, rest, true
	}
	module, err := url.PathUnescape(raw.Module)
	if err != nil {
		return raw, rest, true
	}
	id = identity.Identity{Device: device, Module: module}
	ok = identity.CheckID("device", device) == nil && (module == "" || identity.CheckID("module", module) == nil)
	return id, rest, ok
}
