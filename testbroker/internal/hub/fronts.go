package hub

import (
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// What fronts ask of the hub's state. Each method takes the hub's lock; a front calls them without
// a lock of its own.

// Identify sets the identity that the client states.
func (c *Conn) Identify(id identity.Identity) {
	c.Hub.mu.Lock()
	defer c.Hub.mu.Unlock()
	c.ID = id
	c.candidateLocked(id)
}

// Candidate notes that the connection may act for an identity. A front calls it, or
// [Conn.Identify], before Present or Matches returns true.
func (c *Conn) Candidate(id identity.Identity) {
	c.Hub.mu.Lock()
	defer c.Hub.mu.Unlock()
	c.candidateLocked(id)
}

func (c *Conn) candidateLocked(id identity.Identity) {
	h := c.Hub
	device := id.Device
	if _, again := h.candidates[device][c]; again || device == "" {
		return
	}
	if _, open := h.conns[c]; !open {
		return
	}
	if h.candidates[device] == nil {
		h.candidates[device] = make(map[*Conn]struct{})
	}
	h.candidates[device][c] = struct{}{}
	c.candidates = append(c.candidates, device)
}

// leaveLocked removes an ended connection from the tables of connections.
func (c *Conn) leaveLocked() {
	h := c.Hub
	delete(h.conns, c)
	for _, device := range c.candidates {
		if delete(h.candidates[device], c); len(h.candidates[device]) == 0 {
			delete(h.candidates, device)
		}
	}
	c.candidates = nil
}

// Identity returns the identity that the client has stated.
func (c *Conn) Identity() identity.Identity {
	c.Hub.mu.Lock()
	defer c.Hub.mu.Unlock()
	return c.ID
}

// Establish marks the connection as established.
func (c *Conn) Establish() { c.SetLive(func() bool { return true }) }

// SetLive marks the connection as established if live, which is called while the hub is locked,
// returns true.
func (c *Conn) SetLive(live func() bool) {
	c.Hub.mu.Lock()
	defer c.Hub.mu.Unlock()
	c.live = live()
}

// SetPeer sets the front's state of the connection.
func (c *Conn) SetPeer(p Peer) {
	c.Hub.mu.Lock()
	defer c.Hub.mu.Unlock()
	c.peer = p
}

// Peer returns the front's state of the connection; nil before a protocol has begun.
func (c *Conn) Peer() Peer {
	c.Hub.mu.Lock()
	defer c.Hub.mu.Unlock()
	return c.peer
}

// Known returns why an identity cannot connect: it is not registered, or disabled.
func (h *Hub) Known(id identity.Identity) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := h.knownLocked(h.Host, id)
	return err
}

// Authorize checks the identity that a client states against its token.
func (h *Hub) Authorize(host string, id identity.Identity, t identity.Token) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.authorizeLocked(host, id, t)
}

// AuthorizePolicy checks a token that requires one of the rights.
func (h *Hub) AuthorizePolicy(t identity.Token, need hubdata.Right) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.authorizePolicyLocked(t, need)
}

// Certified checks the identity that a client states against its certificates.
func (h *Hub) Certified(host string, id identity.Identity, chain []*x509.Certificate) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.certifiedLocked(host, id, chain)
}

// CertifiesAny reports whether the certificates are those of a registered identity with that name;
// an empty name means any.
func (h *Hub) CertifiesAny(name string, chain []*x509.Certificate) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, entry := range h.registry {
		if entry.X509 && (name == "" || name == id.String()) && h.certifiedLocked(h.Host, id, chain) == nil {
			return true
		}
	}
	return false
}

// Obey records the effect of a requested fault. stands, unless nil, refuses the identity from this
// time on.
func (h *Hub) Obey(id identity.Identity, f *fault.Message, happened bool, stands *StandingFault) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if stands != nil {
		stands.Record = f
		h.standing[id] = *stands
	}
	f.Happened = happened
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

func (h *Hub) connectedLocked(id identity.Identity) bool {
	for c := range h.candidates[id.Device] {
		if c.peer != nil && c.peer.Present(id, c.live) {
			return true
		}
	}
	return false
}

// ErrIdentityExists is returned by Register for an identity that is registered already.
var ErrIdentityExists = errors.New("identity is registered already")

// Register adds an entry, for a module only if its device is registered and has fewer than
// maxModules modules.
func (h *Hub) Register(id identity.Identity, r Registration, maxModules int) error {
	defer h.Records.Saved()
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.Module != "" {
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

// Reregister replaces the entry of an identity if accept returns true for it. Keys that r lacks are
// kept or made. A device that becomes disabled loses its connections.
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

// A TwinView is a copy of a twin as back ends see it.
type TwinView struct {
	Desired, Reported, Tags Section
	Version                 int64
	Etag                    string
	Model                   string
}

// View returns the present state. Its trees are never modified.
func (t *TwinState) View() TwinView {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stateLocked()
}

// stateLocked returns the state. Sections are replaced and never changed, so it stays as it is.
func (t *TwinState) stateLocked() TwinView {
	return TwinView{t.Desired, t.Reported, t.Tags, t.Version, EtagOf(t.Etag), t.Model}
}
