package hub

// A Plug is a part of a hub that its devices do not see.
type Plug interface {
	// Changed is called after each change of a twin or of the registry, possibly with the hub locked.
	Changed()
	// Stop ends what the part does in goroutines of the hub. It does not wait.
	Stop(cause error)
	// Clear makes the part as new. It waits until the part changes no identities and twins.
	Clear()
}

// noPlug is the plug of a hub without such a part.
type noPlug struct{}

func (noPlug) Changed()   {}
func (noPlug) Stop(error) {}
func (noPlug) Clear()     {}

// SetPlug sets the hub's plug. It is called before the first connection.
func (h *Hub) SetPlug(p Plug) { h.plug = p }

// Plugged returns the hub's plug.
func (h *Hub) Plugged() Plug { return h.plug }
