package testbroker

import "net"

// A front speaks one protocol with the clients of a hub. It depends on the hub and on no other
// front.
type front interface {
	// below returns what TLS, or the protocol itself, is spoken on: the network connection of c, or
	// something that wraps it. With it come the protocols that TLS offers, none as a rule.
	below(c *conn) (on net.Conn, offer []string)
	// serve is the life of a connection from the protocol's first byte on. It returns the protocol
	// that the client has switched to, or zero and why the connection has ended.
	serve(c *conn) (next Protocol, err error)
	// methodTargetLocked returns the client that takes calls of a method; nil if there is none.
	methodTargetLocked(id identity, name string) methodTarget
	// desiredListenersLocked returns the clients that are told of changes of desired properties.
	desiredListenersLocked(id identity) []desiredListener
	// forgetLocked drops what the front keeps between connections for the identities that a selector
	// means.
	forgetLocked(selector string)
	// close frees what the front holds when all connections have ended.
	close() error
}

// A peer is what a front knows of a connection. Methods that end in Locked are called with Hub.mu
// held, the others with no lock held.
type peer interface {
	// matchesLocked reports whether a selector that is not empty means the connection.
	matchesLocked(selector string) bool
	// presentLocked reports whether the registry shows an identity as connected because of it.
	presentLocked(id identity) bool
	// expel ends what the connection does for the identities that a selector means. The condition is
	// the name that AMQP has for the cause.
	expel(selector string, cause error, condition string)
	// leaveLocked takes the connection, which has ended, out of the front's tables.
	leaveLocked()
	// finish tells of the end of the connection, once. It was live before, or the hub is being closed.
	finish(cause error, live, closed bool)
}
