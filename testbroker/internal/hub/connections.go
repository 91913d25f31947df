package hub

import (
	"cmp"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Connections returns how many connections are established: accepted by CONNACK, or opened over
// AMQP, and not ended.
func (h *Hub) Connections(device string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for c := range h.amongLocked(device) {
		if c.live && c.matchesLocked(device) {
			n++
		}
	}
	return n
}

func (h *Hub) ConnsOf(selector string) []*Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connsLocked(selector)
}

// connsLocked returns the connections that match a selector, oldest first.
func (h *Hub) connsLocked(selector string) []*Conn {
	var all []*Conn
	for c := range h.amongLocked(selector) {
		if c.matchesLocked(selector) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Conn) int { return cmp.Compare(a.Number, b.Number) })
	return all
}

// amongLocked returns the connections that a selector can match.
func (h *Hub) amongLocked(selector string) map[*Conn]struct{} {
	if selector == "" {
		return h.conns
	}
	return h.candidates[identity.SplitIdentity(selector).Device]
}

// matchesLocked reports whether a selector matches the connection. The hub is locked.
func (c *Conn) matchesLocked(selector string) bool {
	switch {
	case selector == "":
		return true
	case c.peer != nil:
		return c.peer.Matches(selector)
	}
	return c.ID.Matches(selector)
}

// Drop cuts, with RST, the connections of a device; empty means all, including those without a
// CONNECT.
func (h *Hub) Drop(device string) int {
	open := h.ConnsOf(device)
	for _, c := range open {
		c.CutFor(ErrDropped)
	}
	return len(open)
}

// CloseConnections ends in order the connections of a device, and returns their number.
func (h *Hub) CloseConnections(device string) int {
	open := h.ConnsOf(device)
	h.Expel(open, device, ErrDropped, "amqp:connection:forced")
	return len(open)
}

// Expel ends the service of the connections for the identities that match a selector.
func (h *Hub) Expel(open []*Conn, selector string, cause error, condition string) {
	for _, c := range open {
		h.mu.Lock()
		peer := c.peer
		h.mu.Unlock()
		if peer != nil {
			peer.Expel(selector, cause, condition)
		} else {
			c.CloseFor(cause)
		}
	}
}

// SendRaw sends bytes unchanged to the established connections of a device, between two packets of
// the hub.
func (h *Hub) SendRaw(device string, p []byte) int {
	h.mu.Lock()
	var live []*Conn
	for _, c := range h.connsLocked(device) {
		if c.live {
			live = append(live, c)
		}
	}
	h.mu.Unlock()
	for _, c := range live {
		c.Write(p)
	}
	return len(live)
}

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

func (h *Hub) connectedLocked(id identity.Identity) bool {
	for c := range h.candidates[id.Device] {
		if c.peer != nil && c.peer.Present(id, c.live) {
			return true
		}
	}
	return false
}
