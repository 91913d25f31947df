package device

import "github.com/hubline-iot/hubline/transport"

// repeated says what the client does again, without being asked, when the connection ended, or the
// time for an answer was over, before the outcome of it was known. What is not in it is left to
// whoever began it.
var repeated = [...]bool{
	transport.OpSend:    true, // at least once; the hub tells duplicates by their message id
	transport.OpTwinGet: true, // changes nothing
	// sets values, and those of later calls come after it; not with an expected version, which the
	// first try may have used up
	transport.OpTwinPatch: true,
	transport.OpSubscribe: true,  // by each new session
	transport.OpRenew:     false, // a new session has a new token
	transport.OpRespond:   false, // the hub has given the call up
	transport.OpSettle:    false, // the hub delivers the message again
	transport.OpPing:      false,
}

// repeats reports whether r is done again after an unknown outcome.
func repeats(r *transport.Request) bool {
	return repeated[r.Op] && !(r.Op == transport.OpTwinPatch && r.Version != 0)
}
