package hub

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
)

var (
	// ErrNotFound is returned for an unknown device or module.
	ErrNotFound = errors.New("testbroker: no such identity")
	// ErrExists is returned when a device, module or policy is added a second time.
	ErrExists = errors.New("testbroker: already exists")

	ErrNotCovered = errors.New("does not cover")
)

// A Registration is the registry's entry for one identity. Guarded by Hub.mu.
type Registration struct {
	Keys        identity.KeyPair
	X509        bool     // authenticated by certificate, without keys
	Thumbprints []string // digests of its certificates; nil = signed by an authority
	Issued      []string // digests of certificates that were issued to it, the newest last
	Disabled    bool
	IoTEdge     bool // of a device: it runs an edge gateway, and has the modules of one

	Generation    string // unique for each entry ever made
	Changes       int
	StatusReason  string
	StatusUpdated time.Time // zero = never
}

// AddDevice registers a device, enabled, with new keys.
func (h *Hub) AddDevice(id string) (hubdata.Device, error) {
	if err := identity.CheckID("device", id); err != nil {
		return hubdata.Device{}, fmt.Errorf("testbroker: %w", err)
	}
	return h.add(identity.Identity{Device: id}, Registration{})
}

// AddModule registers a module of a registered device.
func (h *Hub) AddModule(deviceID, moduleID string) (hubdata.Device, error) {
	if err := identity.CheckID("module", moduleID); err != nil {
		return hubdata.Device{}, fmt.Errorf("testbroker: %w", err)
	}
	return h.add(identity.Identity{Device: deviceID, Module: moduleID}, Registration{})
}

func (h *Hub) add(id identity.Identity, r Registration) (hubdata.Device, error) {
	if h.MQTTv5 && id.Module != "" {
		return hubdata.Device{}, h.lacks("modules")
	}
	defer h.Records.Saved()
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.Module != "" && h.registry[identity.Identity{Device: id.Device}] == nil {
		return hubdata.Device{}, fmt.Errorf("%w: %s", ErrNotFound, id.Device)
	}
	if h.registry[id] != nil {
		return hubdata.Device{}, fmt.Errorf("%w: %s", ErrExists, id)
	}
	h.addLocked(id, r)
	return h.deviceLocked(id), nil
}

// addLocked adds a registration. It makes keys if the registration needs keys and has none.
func (h *Hub) addLocked(id identity.Identity, r Registration) {
	if !r.X509 && r.Keys == (identity.KeyPair{}) {
		r.Keys = h.newKeysLocked("identity/" + id.String())
	}
	h.entries++
	h.Records.Touch(tableCounts, "")
	r.Generation = strconv.FormatInt(637000000000000000+int64(h.entries), 10)
	h.enterLocked(id, &r)
	h.touchDevice(id)
	h.notifyCreatedLocked(id)
	h.addEdgeModulesLocked(id, &r)
	h.plug.Changed()
}

// addEdgeModulesLocked adds the modules that each device with an edge gateway has.
func (h *Hub) addEdgeModulesLocked(id identity.Identity, r *Registration) {
	if !r.IoTEdge || id.Module != "" {
		return
	}
	for _, name := range []string{"$edgeAgent", "$edgeHub"} {
		if m := (identity.Identity{Device: id.Device, Module: name}); h.registry[m] == nil {
			h.addLocked(m, Registration{})
		}
	}
}

func (h *Hub) deviceLocked(id identity.Identity) hubdata.Device {
	entry := h.registry[id]
	return hubdata.Device{
		HostName: h.Host, GatewayHostName: h.GatewayName(), ID: id.Device, ModuleID: id.Module,
		GenerationID: entry.Generation,
		PrimaryKey:   entry.Keys.Primary, SecondaryKey: entry.Keys.Secondary,
		Disabled: h.registry[identity.Identity{Device: id.Device}].Disabled,
	}
}

// newKeysLocked makes a pair of keys. With a seed it derives them from the seed, the owner's name
// and the number of the owner's earlier pairs. So they do not depend on the order in which others
// are added.
func (h *Hub) newKeysLocked(owner string) identity.KeyPair {
	if h.Seed == 0 {
		return identity.KeyPair{Primary: randomKey(), Secondary: randomKey()}
	}
	h.generations[owner]++
	h.Records.Touch(tableCounts, "")
	derive := func(which string) string {
		return base64.StdEncoding.EncodeToString(identity.Derived(h.Seed, "%s\n%s\n%d", which, owner, h.generations[owner]))
	}
	return identity.KeyPair{Primary: derive("primary"), Secondary: derive("secondary")}
}

func randomKey() string {
	var b [32]byte
	rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// Device returns the entry of a device.
func (h *Hub) Device(id string) (hubdata.Device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	who := identity.SplitIdentity(id)
	if h.registry[who] == nil {
		return hubdata.Device{}, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return h.deviceLocked(who), nil
}

// ConnectionString returns the connection string of a device.
func (h *Hub) ConnectionString(id string) string {
	d, err := h.Device(id)
	if err != nil {
		return ""
	}
	return d.ConnectionString()
}

// SetKeys replaces both keys, base64 of 16 to 64 bytes, of a device or of a module named
// "deviceID/moduleID".
func (h *Hub) SetKeys(id, primary, secondary string) error {
	for _, key := range []string{primary, secondary} {
		if err := CheckKeyText(key); err != nil {
			return fmt.Errorf("testbroker: %w", err)
		}
	}
	defer h.Records.Saved()
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.registry[identity.SplitIdentity(id)]
	if r == nil {
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	if r.X509 {
		return fmt.Errorf("testbroker: %s has a certificate and no keys", id)
	}
	r.Keys = identity.KeyPair{Primary: primary, Secondary: secondary}
	r.Changes++
	h.touchDevice(identity.SplitIdentity(id))
	return nil
}

func CheckKeyText(key string) error {
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) < 16 || len(raw) > 64 {
		return errors.New("a key must be base64 of 16 to 64 bytes")
	}
	return nil
}

// SetEnabled enables or disables a device together with its modules.
func (h *Hub) SetEnabled(deviceID string, on bool) error {
	h.mu.Lock()
	r := h.registry[identity.Identity{Device: deviceID}]
	if r == nil {
		h.mu.Unlock()
		return fmt.Errorf("%w: %s", ErrNotFound, deviceID)
	}
	if r.Disabled == on {
		r.StatusUpdated = h.Now()
		r.Changes++
	}
	r.Disabled = !on
	h.touchDevice(identity.Identity{Device: deviceID})
	var open []*Conn
	if !on {
		open = h.connsLocked(deviceID)
	}
	h.mu.Unlock()
	h.Expel(open, deviceID, ErrDisabled, Unauthorized)
	h.Records.Saved()
	return nil
}

func (h *Hub) generation(id identity.Identity) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.registry[id]; r != nil {
		return r.Generation
	}
	return ""
}

// RemoveDevice removes a device with its modules, or one module named "deviceID/moduleID", from the
// registry and closes the connections.
func (h *Hub) RemoveDevice(id string) error {
	if !h.Unregister(identity.SplitIdentity(id), func(*Registration) bool { return true }) {
		return fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return nil
}

// Unregister is RemoveDevice if the identity is registered and accept returns true for its entry.
func (h *Hub) Unregister(id identity.Identity, accept func(*Registration) bool) bool {
	h.mu.Lock()
	if r := h.registry[id]; r == nil || !accept(r) {
		h.mu.Unlock()
		return false
	}
	gone := h.familyLocked(id)
	for _, other := range gone {
		h.notifyRemovedLocked(other)
		h.dropLocked(other)
		h.touchDevice(other)
		h.forgetTwinLocked(other)
		for _, f := range h.Fronts {
			f.Forget(other.String())
		}
	}
	open := h.connsLocked(id.String())
	h.mu.Unlock()
	h.Expel(open, id.String(), ErrRemoved, "amqp:resource-deleted")
	h.forgetCertificates(gone)
	h.Purge(id.String(), Boxes[:]...)
	h.noteRemoved(gone)
	h.Records.Saved()
	return true
}

// enterLocked and dropLocked are the only changes of what is registered.
func (h *Hub) enterLocked(id identity.Identity, r *Registration) {
	h.registry[id] = r
	if id.Module == "" {
		return
	}
	if h.modules[id.Device] == nil {
		h.modules[id.Device] = make(map[string]struct{})
	}
	h.modules[id.Device][id.Module] = struct{}{}
}

func (h *Hub) dropLocked(id identity.Identity) {
	delete(h.registry, id)
	if id.Module != "" {
		if delete(h.modules[id.Device], id.Module); len(h.modules[id.Device]) == 0 {
			delete(h.modules, id.Device)
		}
	}
}

// familyLocked returns a registered identity, behind its modules if it is a device.
func (h *Hub) familyLocked(id identity.Identity) (all []identity.Identity) {
	if id.Module == "" {
		for _, name := range slices.Sorted(maps.Keys(h.modules[id.Device])) {
			all = append(all, identity.Identity{Device: id.Device, Module: name})
		}
	}
	return append(all, id)
}

// removals are the latest removals of identities, and how many of these each identity has.
type removals struct {
	log   keep.History[identity.Identity]
	times map[identity.Identity]int
}

// add notes a removal. last reports that the removal which is forgotten for it was the last one of
// old.
func (r *removals) add(id identity.Identity) (old identity.Identity, last bool) {
	r.times[id]++
	old, forgot := r.log.Add(id)
	if !forgot {
		return old, false
	}
	if r.times[old]--; r.times[old] == 0 {
		delete(r.times, old)
		return old, true
	}
	return old, false
}

func (r *removals) clear() {
	r.log.Clear()
	clear(r.times)
}

// noteRemoved keeps the data of removed identities, and drops that of identities whose removal it
// forgets.
func (h *Hub) noteRemoved(gone []identity.Identity) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range gone {
		if old, last := h.removed.add(id); last && h.registry[old] == nil {
			h.forgetQueuesLocked(old)
			h.Requests.Forget(old)
		}
	}
}

func (h *Hub) Registered(id identity.Identity) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.registry[id] != nil
}

// Devices returns the registry: devices and their modules, by name.
func (h *Hub) Devices() []hubdata.Device {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := make([]hubdata.Device, 0, len(h.registry))
	for id := range h.registry {
		all = append(all, h.deviceLocked(id))
	}
	slices.SortFunc(all, func(a, b hubdata.Device) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.ModuleID, b.ModuleID))
	})
	return all
}

// Identities returns the registered identities, sorted by name.
func (h *Hub) Identities() []identity.Identity {
	h.mu.Lock()
	all := slices.Collect(maps.Keys(h.registry))
	h.mu.Unlock()
	slices.SortFunc(all, func(a, b identity.Identity) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// Registration returns a copy of the entry of an identity, and whether it has a connection over
// MQTT or is authorized on one over AMQP; false when it is not registered.
func (h *Hub) Registration(id identity.Identity) (r Registration, connected, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	entry := h.registry[id]
	if entry == nil {
		return Registration{}, false, false
	}
	return *entry, h.connectedLocked(id), true
}
