package hub

import "net"

// A Front speaks one protocol with the clients of a hub. It depends on the hub and on no other
// front.
type Front interface {
	// Below returns what TLS, or the protocol itself, is spoken on: the network connection of c, or
	// something that wraps it. With it come the protocols that TLS offers, none as a rule.
	Below(c *Conn) (on net.Conn, offer []string)
	// Serve is the life of a connection from the protocol's first byte on. It returns the protocol
	// that the client has switched to, or zero and why the connection has ended.
	Serve(c *Conn) (next Protocol, err error)
	// MethodTargetLocked returns the client that takes calls of a method; nil if there is none.
	MethodTargetLocked(id Identity, name string) MethodTarget
	// DesiredListenersLocked returns the clients that are told of changes of desired properties.
	DesiredListenersLocked(id Identity) []DesiredListener
	// ForgetLocked drops what the front keeps between connections for the identities that a selector
	// means.
	ForgetLocked(selector string)
	// Shutdown frees what the front holds when all connections have ended.
	Shutdown() error
}

// A Peer is what a front knows of a connection. Methods that end in Locked are called with Hub.mu
// held, the others with no lock held.
type Peer interface {
	// MatchesLocked reports whether a selector that is not empty means the connection.
	MatchesLocked(selector string) bool
	// PresentLocked reports whether the registry shows an identity as connected because of it.
	PresentLocked(id Identity) bool
	// Expel ends what the connection does for the identities that a selector means. The condition is
	// the name that AMQP has for the cause.
	Expel(selector string, cause error, condition string)
	// LeaveLocked takes the connection, which has ended, out of the front's tables.
	LeaveLocked()
	// Finish tells of the end of the connection, once. It was live before, or the hub is being closed.
	Finish(cause error, live, closed bool)
}
