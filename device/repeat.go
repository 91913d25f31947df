package device

import "github.com/hubline-iot/hubline/transport"

// repeated lists the operations that the client repeats by itself when their outcome is unknown,
// because the connection ended or the answer timed out. Other operations fail, and the caller
// decides.
var repeated = [...]bool{
	transport.OpSend:    true, // at least once; consumers detect duplicates by message id
	transport.OpTwinGet: true, // changes nothing
	// The patch sets values, and later calls are applied after it. A patch with an expected version is
	// not repeated, because the first try may have used that version up.
	transport.OpTwinPatch: true,
	transport.OpSubscribe: true,  // by each new session
	transport.OpRenew:     false, // a new session has a new token
	transport.OpRespond:   false, // the hub has given up the call
	transport.OpSettle:    false, // the hub delivers the message again
	transport.OpPing:      false,
	transport.OpIssue:     false, // package dpscert repeats it
}

// repeats reports whether r is done again after an unknown outcome.
func repeats(r *transport.Request) bool {
	return repeated[r.Op] && !(r.Op == transport.OpTwinPatch && r.Version != 0)
}
