package hub

import (
	"errors"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// ErrIdentityExists is returned by Register for an identity that is registered already.
var ErrIdentityExists = errors.New("identity is registered already")

// Register adds an entry, for a module only if its device is registered and has fewer than
// maxModules modules.
func (h *Hub) Register(id identity.Identity, r Registration, maxModules int) error {
	defer h.Records.Saved()
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.Module != "" {
		if h.MQTTv5 {
			return h.lacks("modules")
		}
		if h.registry[identity.Identity{Device: id.Device}] == nil {
			return h.ServiceError(CodeDeviceNotFound, "%s is not registered", id.Device)
		}
		if n := len(h.modules[id.Device]); n >= maxModules {
			return h.ServiceError(413003, "%s has %d modules", id.Device, n)
		}
	}
	if h.registry[id] != nil {
		return ErrIdentityExists
	}
	h.addLocked(id, r)
	return nil
}

// Reregister replaces the entry of an identity if accept returns true for it. Issued certificates
// stay valid if r has the same kind of authentication and the same thumbprints. Keys that r lacks
// are kept or made. A device that becomes disabled loses its connections.
func (h *Hub) Reregister(id identity.Identity, r Registration, accept func(*Registration) bool) bool {
	open, ok := h.replace(id, r, accept)
	h.Expel(open, id.String(), ErrDisabled, Unauthorized)
	h.Records.Saved()
	return ok
}

// replace is Reregister without the end of connections: it returns those that must end.
func (h *Hub) replace(id identity.Identity, r Registration, accept func(*Registration) bool) (open []*Conn, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.registry[id]
	if old == nil || !accept(old) {
		return nil, false
	}
	if r.Keys == (identity.KeyPair{}) && !r.X509 {
		if r.Keys = old.Keys; r.Keys == (identity.KeyPair{}) {
			r.Keys = h.newKeysLocked("identity/" + id.String())
		}
	}
	if r.X509 == old.X509 && slices.Equal(r.Thumbprints, old.Thumbprints) {
		r.Issued = old.Issued
	}
	r.Generation, r.Changes, r.StatusUpdated = old.Generation, old.Changes+1, old.StatusUpdated
	if r.Disabled != old.Disabled {
		r.StatusUpdated = h.Now()
	}
	if r.Disabled && !old.Disabled {
		open = h.connsLocked(id.String())
	}
	*old = r
	h.touchDevice(id)
	h.addEdgeModulesLocked(id, old)
	h.plug.Changed()
	return open, true
}

// Provision adds a device, or replaces the keys or thumbprints of a registered one. A registered
// device keeps its status and its twin, and may go on using certificates that were issued to it
// before, until they end, if it gets another one. added reports whether the device was new.
func (h *Hub) Provision(id identity.Identity, r Registration) (added bool, err error) {
	if err := identity.CheckID("device", id.Device); err != nil {
		return false, err
	}
	defer h.Records.Saved()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false, ErrClosed
	}
	old := h.registry[id]
	if old == nil {
		h.addLocked(id, r)
		return true, nil
	}
	old.Keys, old.X509, old.Thumbprints = r.Keys, r.X509, r.Thumbprints
	if r.Issued != nil {
		old.accept(r.Issued...)
	} else {
		old.Issued = nil
	}
	old.Changes++
	h.touchDevice(id)
	return false, nil
}

// NewKeys returns new keys of an owner, the same in each run if there is a seed.
func (h *Hub) NewKeys(owner string) identity.KeyPair {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newKeysLocked(owner)
}
