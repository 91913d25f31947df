package hubdata

// Gateway is the state of an edge gateway.
type Gateway struct {
	// Name is the gateway's host name; empty when the hub has no gateway.
	Name string
	// Offline and Stopped are set by testbroker.Hub.SetOffline and testbroker.Hub.StopGateway.
	Offline, Stopped bool
	// Stored is how many messages to the hub wait in the gateway's store.
	Stored int

	// The following count messages since New or the last testbroker.Hub.Reset.

	// Forwarded counts the messages that the hub has got from the gateway.
	Forwarded int
	// Expired counts the messages that were too old before the hub could get them.
	Expired int
	// Unrouted counts the messages that no route takes, and those routed to a module that does not
	// exist or whose queue is full.
	Unrouted int
}
