package testbroker

import "github.com/hubline-iot/hubline/testbroker/internal/hub"

// Held returns how many entries the hub holds of each thing that [Options.Keep] bounds.
func Held(h *Hub) map[string]int { return h.hub.Held() }

// SetPolicyKey gives a policy one key.
func (h *Hub) SetPolicyKey(name, key string) { h.hub.SetPolicyKey(name, key) }

// SetPacketID says which packet id the last C2D message had.
func (h *Hub) SetPacketID(id string, last uint16) { h.hub.SetPacketID(id, last) }

// FaultKinds returns every kind that has a name.
func FaultKinds() []FaultKind { return hub.FaultKinds() }

// ErrorName returns the service's name of a code.
func ErrorName(code int) string { return hub.ErrorName(code) }
