package testbroker

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

const maxID = 128 // characters of a device or module id

// idPunctuation is what an id may contain beside ASCII letters and digits.
const idPunctuation = "-.+%_#*?!(),:=@$'"

// An identity is a device, or one module of a device.
type identity struct {
	device string
	module string // empty = the device itself
}

// String returns "device" or "device/module". No id contains a slash, so it is unambiguous. It is
// also the MQTT client id that the hub expects.
func (id identity) String() string {
	if id.module == "" {
		return id.device
	}
	return id.device + "/" + id.module
}

// splitIdentity reads what String writes, without checking the ids.
func splitIdentity(s string) identity {
	device, module, _ := strings.Cut(s, "/")
	return identity{device, module}
}

// resource is the path of the identity below the host, as tokens name it.
func (id identity) resource() string {
	if id.module == "" {
		return "devices/" + id.device
	}
	return "devices/" + id.device + "/modules/" + id.module
}

// telemetry is the topic that the identity publishes to, without a property bag.
func (id identity) telemetry() string { return id.resource() + "/messages/events/" }

// matches says whether a selector such as that of a fault means this identity: "" means everyone,
// "device" the device and its modules, "device/module" that module.
func (id identity) matches(selector string) bool {
	return selector == "" || selector == id.device && id.device != "" || selector == id.String()
}

func checkID(what, id string) error {
	if id == "" || len(id) > maxID {
		return fmt.Errorf("%s id of %d characters, want 1 to %d", what, len(id), maxID)
	}
	for _, r := range id {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		case strings.ContainsRune(idPunctuation, r):
		default:
			return fmt.Errorf("%s id %q: character %q is not allowed", what, id, r)
		}
	}
	return nil
}

func checkHost(host string) error {
	if host == "" || len(host) > 253 {
		return fmt.Errorf("host name of %d characters", len(host))
	}
	for _, r := range host {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
		default:
			return fmt.Errorf("host name %q: character %q is not allowed", host, r)
		}
	}
	return nil
}

// knows says whether a client may mean this hub by a host name: those of its certificate, with or
// without a port.
func (h *Hub) knows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return host == "" || strings.EqualFold(host, h.host) || slices.Contains([]string{"localhost", "127.0.0.1", "::1"},
		host)
}

// identityOf reads "devices/{device}[/modules/{module}]/rest". Clients percent-encode ids or not,
// and ids may contain percent signs, so an id that is registered as it stands is meant as it
// stands.
func (h *Hub) identityOf(path string) (id identity, rest string, ok bool) {
	part := strings.Split(path, "/")
	if len(part) < 3 || !strings.EqualFold(part[0], "devices") {
		return id, "", false
	}
	raw := identity{device: part[1]}
	part = part[2:]
	if len(part) >= 3 && strings.EqualFold(part[0], "modules") {
		raw.module = part[1]
		part = part[2:]
	}
	rest = strings.Join(part, "/")
	if h.registered(raw) {
		return raw, rest, true
	}
	device, err := url.PathUnescape(raw.device)
	if err != nil {
		return raw, rest, true
	}
	module, err := url.PathUnescape(raw.module)
	if err != nil {
		return raw, rest, true
	}
	id = identity{device, module}
	return id, rest, checkID("device", device) == nil && (module == "" || checkID("module", module) == nil)
}
