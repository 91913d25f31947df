package hub

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

const maxID = 128 // characters of a device or module id

// idPunctuation are the characters that an id may contain besides ASCII letters and digits.
const idPunctuation = "-.+%_#*?!(),:=@$'"

// An Identity is a device, or one module of a device.
type Identity struct {
	Device string
	Module string // empty = the device itself
}

// String returns "device" or "device/module". Ids contain no slash, so the result is unambiguous.
// It is also the MQTT client id that the hub expects.
func (id Identity) String() string {
	if id.Module == "" {
		return id.Device
	}
	return id.Device + "/" + id.Module
}

// SplitIdentity parses the output of String without checking the ids.
func SplitIdentity(s string) Identity {
	device, module, _ := strings.Cut(s, "/")
	return Identity{device, module}
}

// Resource returns the path of the identity below the host, as in tokens.
func (id Identity) Resource() string {
	if id.Module == "" {
		return "devices/" + id.Device
	}
	return "devices/" + id.Device + "/modules/" + id.Module
}

// Telemetry returns the topic to which the identity publishes, without a property bag.
func (id Identity) Telemetry() string { return id.Resource() + "/messages/events/" }

// Matches reports whether a selector, such as that of a fault, matches this identity: "" matches
// every identity, "device" the device and its modules, "device/module" that module.
func (id Identity) Matches(selector string) bool {
	return selector == "" || selector == id.Device && id.Device != "" || selector == id.String()
}

func CheckID(what, id string) error {
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

// CheckHost checks the name of a hub or of a provisioning service.
func CheckHost(host string) error {
	if host == "" || len(host) > 253 {
		return fmt.Errorf("host name of %d characters, want 1 to 253", len(host))
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

// IsName reports whether a host name is the hub's own or its other one.
func (h *Hub) IsName(host string) bool {
	return strings.EqualFold(host, h.Host) || host != "" && strings.EqualFold(host, h.otherName())
}

// deviceLabel is in the name that a hub has for devices with TLS 1.3: HUB.device.azure-devices.net
// beside HUB.azure-devices.net.
const deviceLabel = "device"

// otherName returns the name for devices, or for a hub that is called by that the classic one. It
// is empty for a name without dots, and for an address.
func (h *Hub) otherName() string {
	first, rest, found := strings.Cut(h.Host, ".")
	if !found || net.ParseIP(h.Host) != nil {
		return ""
	}
	if label, classic, found := strings.Cut(rest, "."); found && strings.EqualFold(label, deviceLabel) {
		return first + "." + classic
	}
	return first + "." + deviceLabel + "." + rest
}

// covers reports whether a token is for an identity, under one of the hub's names.
func (h *Hub) covers(t Token, id Identity) bool {
	other := h.otherName()
	return t.covers(h.Host, id) || other != "" && t.covers(other, id)
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
func (h *Hub) IdentityOf(path string) (id Identity, rest string, ok bool) {
	part := strings.Split(path, "/")
	if len(part) < 3 || !strings.EqualFold(part[0], "devices") {
		return id, "", false
	}
	raw := Identity{Device: part[1]}
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
	id = Identity{device, module}
	return id, rest, CheckID("device", device) == nil && (module == "" || CheckID("module", module) == nil)
}
