package testbroker

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrNotFound is returned for a device or module that the hub does not know.
	ErrNotFound = errors.New("testbroker: no such identity")
	// ErrExists is returned when a device, module or policy is added a second time.
	ErrExists = errors.New("testbroker: already exists")

	errNotCovered = errors.New("does not cover")
)

// Device is an entry of the hub's registry: a device, or a module of one. It holds secrets: String
// and the %v verbs of package fmt leave the keys out.
type Device struct {
	// HostName is the name of the hub.
	HostName string
	// ID is the device id.
	ID string
	// ModuleID is empty for the device itself.
	ModuleID string
	// PrimaryKey and SecondaryKey are 32 bytes each, in base64. Either signs valid tokens. They are
	// empty for a device that has a certificate.
	PrimaryKey, SecondaryKey string
}

// ConnectionString returns the text that a client needs to connect, with the primary key.
func (d Device) ConnectionString() string {
	s := "HostName=" + d.HostName + ";DeviceId=" + d.ID
	if d.ModuleID != "" {
		s += ";ModuleId=" + d.ModuleID
	}
	if d.PrimaryKey == "" {
		return s + ";x509=true"
	}
	return s + ";SharedAccessKey=" + d.PrimaryKey
}

// String names the device without its keys.
func (d Device) String() string { return identity{d.ID, d.ModuleID}.String() + " at " + d.HostName }

// GoString is String.
func (d Device) GoString() string { return d.String() }

type keyPair struct{ primary, secondary string }

// A registration is what the registry holds for one identity. Guarded by Hub.mu.
type registration struct {
	keys        keyPair
	x509        bool     // it has a certificate and no keys
	thumbprints []string // digests of its certificates; nil = an authority signed it
	disabled    bool

	generation    string // another for each entry that was ever made
	changes       int
	statusReason  string
	statusUpdated time.Time // zero = never
}

// AddDevice registers a device, enabled, with new keys. The id has 1 to 128 characters: ASCII
// letters, digits and
// - . + % _ # * ? ! ( ) , : = @ $ '.
func (h *Hub) AddDevice(id string) (Device, error) {
	if err := checkID("device", id); err != nil {
		return Device{}, fmt.Errorf("testbroker: %w", err)
	}
	return h.add(identity{device: id}, registration{})
}

// AddModule registers a module of a device that exists. Modules have own keys and own connections,
// but no own status. Other methods name it "deviceID/moduleID".
func (h *Hub) AddModule(deviceID, moduleID string) (Device, error) {
	if err := checkID("module", moduleID); err != nil {
		return Device{}, fmt.Errorf("testbroker: %w", err)
	}
	return h.add(identity{deviceID, moduleID}, registration{})
}

func (h *Hub) add(id identity, r registration) (Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.module != "" && h.registry[identity{device: id.device}] == nil {
		return Device{}, fmt.Errorf("%w: %s", ErrNotFound, id.device)
	}
	if h.registry[id] != nil {
		return Device{}, fmt.Errorf("%w: %s", ErrExists, id)
	}
	h.addLocked(id, r)
	return h.deviceLocked(id), nil
}

// addLocked enters a registration, which gets keys if it has none and wants some.
func (h *Hub) addLocked(id identity, r registration) {
	if !r.x509 && r.keys == (keyPair{}) {
		r.keys = h.newKeysLocked("identity/" + id.String())
	}
	h.entries++
	r.generation = strconv.FormatInt(637000000000000000+int64(h.entries), 10)
	h.registry[id] = &r
}

func (h *Hub) deviceLocked(id identity) Device {
	keys := h.registry[id].keys
	return Device{h.host, id.device, id.module, keys.primary, keys.secondary}
}

// newKeysLocked makes a pair of keys. With a seed they follow from it, from the owner's name and
// from how many pairs that owner had before, so they do not depend on the order in which others are
// added.
func (h *Hub) newKeysLocked(owner string) keyPair {
	if h.seed == 0 {
		return keyPair{randomKey(), randomKey()}
	}
	h.generations[owner]++
	derive := func(which string) string {
		return base64.StdEncoding.EncodeToString(derived(h.seed, "%s\n%s\n%d", which, owner, h.generations[owner]))
	}
	return keyPair{derive("primary"), derive("secondary")}
}

// derived makes 32 bytes from the seed and a text that says what for.
func derived(seed uint64, format string, args ...any) []byte {
	mac := hmac.New(sha256.New, binary.BigEndian.AppendUint64(nil, seed))
	fmt.Fprintf(mac, format, args...)
	return mac.Sum(nil)
}

func randomKey() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// Device returns the entry of a device, or of a module named "deviceID/moduleID".
func (h *Hub) Device(id string) (Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	who := splitIdentity(id)
	if h.registry[who] == nil {
		return Device{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return h.deviceLocked(who), nil
}

// ConnectionString returns the connection string of a device, or of a module named
// "deviceID/moduleID". It is empty when there is none of that name.
func (h *Hub) ConnectionString(id string) string {
	d, err := h.Device(id)
	if err != nil {
		return ""
	}
	return d.ConnectionString()
}

// SetKeys replaces both keys, base64 of 16 to 64 bytes, of a device or of a module named
// "deviceID/moduleID". Tokens signed with the old ones open no new connection; the present one
// lives on.
func (h *Hub) SetKeys(id, primary, secondary string) error {
	for _, key := range []string{primary, secondary} {
		if err := checkKeyText(key); err != nil {
			return fmt.Errorf("testbroker: %w", err)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.registry[splitIdentity(id)]
	if r == nil {
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if r.x509 {
		return fmt.Errorf("testbroker: %s has a certificate and no keys", id)
	}
	r.keys = keyPair{primary, secondary}
	r.changes++
	return nil
}

func checkKeyText(key string) error {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) < 16 || len(raw) > 64 {
		return errors.New("a key must be base64 of 16 to 64 bytes")
	}
	return nil
}

// SetEnabled allows or forbids a device to connect, together with its modules. Forbidding closes
// their connections.
func (h *Hub) SetEnabled(deviceID string, on bool) error {
	h.mu.Lock()
	r := h.registry[identity{device: deviceID}]
	if r == nil {
		h.mu.Unlock()
		return fmt.Errorf("%w: %s", ErrNotFound, deviceID)
	}
	if r.disabled == on {
		r.statusUpdated = h.now()
		r.changes++
	}
	r.disabled = !on
	var open []*conn
	if !on {
		open = h.connsLocked(deviceID)
	}
	h.mu.Unlock()
	h.expel(open, deviceID, ErrDisabled, "amqp:unauthorized-access")
	return nil
}

// RemoveDevice takes a device with its modules, or one module named "deviceID/moduleID", out of the
// registry and closes the connections. A device added again under the same id has other keys.
func (h *Hub) RemoveDevice(id string) error {
	h.mu.Lock()
	who := splitIdentity(id)
	if h.registry[who] == nil {
		h.mu.Unlock()
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	var gone []identity
	for other := range h.registry {
		if other.matches(id) {
			delete(h.registry, other)
			gone = append(gone, other)
		}
	}
	for _, f := range h.fronts {
		f.forgetLocked(id)
	}
	h.forgetTwinsLocked(id)
	open := h.connsLocked(id)
	h.mu.Unlock()
	h.expel(open, id, ErrRemoved, "amqp:resource-deleted")
	h.PurgeC2D(id)
	h.noteRemoved(gone)
	return nil
}

// noteRemoved has the hub keep what it knows of identities that were removed, instead of those
// whose removal it forgets.
func (h *Hub) noteRemoved(gone []identity) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range gone {
		old, forgot := h.removed.add(id)
		if forgot && h.registry[old] == nil && !slices.Contains(h.removed.entries, old) {
			delete(h.queues, old)
			delete(h.standing, old)
		}
	}
}

// expel ends what connections do for the identities that a selector means.
func (h *Hub) expel(open []*conn, selector string, cause error, condition string) {
	for _, c := range open {
		h.mu.Lock()
		peer := c.peer
		h.mu.Unlock()
		if peer != nil {
			peer.expel(selector, cause, condition)
		} else {
			c.closeFor(cause)
		}
	}
}

// knownLocked returns the entry of a client by what it says it is.
func (h *Hub) knownLocked(host string, id identity) (*registration, error) {
	device, entry := h.registry[identity{device: id.device}], h.registry[id]
	switch {
	case !strings.EqualFold(host, h.host):
		return nil, fmt.Errorf("host name %q is not this hub", host)
	case device == nil || entry == nil:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	case device.disabled:
		return nil, ErrDisabled
	}
	return entry, nil
}

// authorizeLocked checks who a client says it is against its token.
func (h *Hub) authorizeLocked(host string, id identity, t token) error {
	entry, err := h.knownLocked(host, id)
	now := h.now()
	switch {
	case err != nil:
		return err
	case now.After(t.deadline(h.grace)):
		return fmt.Errorf("token expired at %s, it is %s", time.Unix(t.expires, 0).UTC().Format(time.RFC3339),
			now.UTC().Format(time.RFC3339))
	case !t.covers(h.host, id):
		return fmt.Errorf("token for %q %w %s", t.resource, errNotCovered, id.resource())
	}
	keys := entry.keys
	if t.policy != "" {
		if keys, err = h.policyKeysLocked(t, DeviceConnect); err != nil {
			return err
		}
	} else if entry.x509 {
		return fmt.Errorf("%s has a certificate and no keys", id)
	}
	if !t.signedBy(keys) {
		return errors.New("token is signed with another key")
	}
	return nil
}

func (h *Hub) registered(id identity) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.registry[id] != nil
}
