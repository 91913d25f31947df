package hub

import (
	"crypto/x509"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// What a provisioning service asks of the hubs that are linked to it.

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

// AdoptTwin replaces the twin of a device by that of another hub, versions included.
func (h *Hub) AdoptTwin(id identity.Identity, v TwinView) error {
	t, err := h.TwinState(id)
	if err != nil {
		return err
	}
	defer h.Records.Saved()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Desired, t.Reported, t.Tags, t.Model = v.Desired, v.Reported, v.Tags, v.Model
	t.Version++
	t.Etag++
	h.touchTwin(t)
	return nil
}

// Later calls do after a delay in a goroutine of the hub, unless the hub or done is closed before.
func (h *Hub) Later(d time.Duration, done <-chan struct{}, do func()) { h.later(d, done, do) }

// PeerChain returns the certificates that the client presented; nil without TLS.
func (c *Conn) PeerChain() []*x509.Certificate {
	if c.TLS == nil {
		return nil
	}
	return c.TLS.ConnectionState().PeerCertificates
}
