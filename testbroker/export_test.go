package testbroker

import "github.com/hubline-iot/hubline/testbroker/internal/hub"

// Held returns the number of entries in each collection that [Options.Keep] bounds.
func Held(h *Hub) map[string]int { return h.hub.Held() }

// SetPolicyKey sets a policy that has the right to connect devices and a single key.
func (h *Hub) SetPolicyKey(name, key string) { h.hub.SetPolicyKey(name, key) }

// SetPacketID sets the packet id of the last C2D message.
func (h *Hub) SetPacketID(id string, last uint16) { h.hub.SetPacketID(id, last) }

// ErrorName returns the service's name of a code.
func ErrorName(code int) string { return hub.ErrorName(code) }
