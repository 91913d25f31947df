package hub

import (
	"net"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// A Front implements one protocol for the clients of a hub. It depends on the hub, not on other
// fronts.
type Front interface {
	// Below returns the connection that carries TLS, or the protocol itself: the network connection of
	// c or a wrapper of it. offer is the list of protocols that TLS offers, usually empty.
	Below(c *Conn) (on net.Conn, offer []string)
	// Serve serves a connection from the protocol's first byte to the end. It returns the protocol to
	// which the client has switched, or zero and why the connection has ended.
	Serve(c *Conn) (next hubdata.Protocol, err error)
	// MethodTarget returns the client that accepts calls of a method; nil if there is none.
	MethodTarget(id identity.Identity, name string) MethodTarget
	// DesiredListeners returns the clients that receive changes of desired properties.
	DesiredListeners(id identity.Identity) []DesiredListener
	// Forget drops, while the hub is locked, the state that the front keeps between connections for
	// the identity with a name, or for all if the name is empty.
	Forget(name string)
	// Shutdown frees the front's resources when all connections have ended.
	Shutdown() error
}

// A Peer is a front's state of a connection. Matches, Present and Leave are called while the hub is
// locked: they may take a lock of the front, and must not call the hub. The others are called with
// no lock held.
type Peer interface {
	// Matches reports whether a selector that is not empty matches the connection.
	Matches(selector string) bool
	// Present reports whether the registry shows an identity as connected because of this connection,
	// which is a candidate for it: see [Conn.Candidate].
	Present(id identity.Identity, live bool) bool
	// Expel ends the connection's service for the identities that match a selector. The condition is
	// the AMQP name of the cause.
	Expel(selector string, cause error, condition string)
	// Leave removes the ended connection from the front's tables.
	Leave()
	// Finish reports the end of the connection, once. live: it was established. closed: the hub is
	// being closed.
	Finish(cause error, live, closed bool)
}

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

func (noPlug) Changed() {}

func (noPlug) Stop(error) {}

func (noPlug) Clear() {}

// SetPlug sets the hub's plug. It is called before the first connection.
func (h *Hub) SetPlug(p Plug) { h.plug = p }

// Plugged returns the hub's plug.
func (h *Hub) Plugged() Plug { return h.plug }
