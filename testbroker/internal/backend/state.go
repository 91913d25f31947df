// Package backend has what only back ends see of a hub: jobs, configurations, imports and exports.
// A hub without it serves its devices all the same.
package backend

import (
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// State is what only back ends see of a hub: its jobs, its configurations, and its imports and
// exports. It plugs into the hub.
type State struct {
	hub       *hub.Hub
	documents func(*hub.Hub, identity.Identity) document.Tree

	jobs           jobs
	transfers      transfers
	configurations configurations
}

var _ hub.Plug = (*State)(nil)

// New plugs the state of back ends into a hub. documents returns a twin as they see it; nil for an
// unknown identity.
func New(h *hub.Hub, documents func(*hub.Hub, identity.Identity) document.Tree) *State {
	s := &State{hub: h, documents: documents}
	s.jobs.keep = h.Keep
	s.configurations.init()
	h.SetPlug(s)
	return s
}

// Of returns the state that was plugged into a hub.
func Of(h *hub.Hub) *State { return h.Plugged().(*State) }

// Stop cancels all jobs, imports and exports.
func (s *State) Stop(cause error) {
	s.jobs.stop(cause)
	s.transfers.stop(cause, "")
}

// Clear ends all jobs, imports and exports, waits for them, and forgets them and the
// configurations.
func (s *State) Clear() {
	s.transfers.clear()
	s.jobs.clear()
	s.configurations.clear()
	s.hub.Records.Clear(TableConfigurations)
}
