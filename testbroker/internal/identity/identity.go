// Package identity has the names of devices and hubs, and what proves them: tokens and
// certificates.
package identity

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
)

const MaxID = 128 // characters of a device or module id

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
	return Identity{Device: device, Module: module}
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

// Matching returns the identities that match a selector, by name.
func Matching[V any](all map[Identity]V, selector string) (some []Identity) {
	for id := range all {
		if id.Matches(selector) {
			some = append(some, id)
		}
	}
	slices.SortFunc(some, func(x, y Identity) int { return strings.Compare(x.String(), y.String()) })
	return some
}

func CheckID(what, id string) error {
	if id == "" || len(id) > MaxID {
		return fmt.Errorf("%s id of %d characters, want 1 to %d", what, len(id), MaxID)
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

// deviceLabel is in the name that a hub has for devices with TLS 1.3: HUB.device.azure-devices.net
// beside HUB.azure-devices.net.
const deviceLabel = "device"

// OtherName returns the name of a hub for devices, or for a hub that is called by that the classic
// one. It is empty for a name without dots, and for an address.
func OtherName(host string) string {
	first, rest, found := strings.Cut(host, ".")
	if !found || net.ParseIP(host) != nil {
		return ""
	}
	if label, classic, found := strings.Cut(rest, "."); found && strings.EqualFold(label, deviceLabel) {
		return first + "." + classic
	}
	return first + "." + deviceLabel + "." + rest
}

// Derived returns 32 bytes derived from the seed and a text that states the purpose.
func Derived(seed uint64, format string, args ...any) []byte {
	mac := hmac.New(sha256.New, binary.BigEndian.AppendUint64(nil, seed))
	fmt.Fprintf(mac, format, args...)
	return mac.Sum(nil)
}

// GUID formats 16 bytes as a GUID in the way of some clients: the first three fields are
// little-endian.
func GUID(b [16]byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(b[:]), le.Uint16(b[4:]), le.Uint16(b[6:]), b[8:10], b[10:])
}
