package hub

// Faults of requests about a twin. Each happens to requests of the kind Operation, or of any if
// Operation is [TwinAny].
const (
	// DropBeforeTwin cuts the connection by RST before the request is looked at.
	DropBeforeTwin FaultKind = iota + 300
	// RefuseTwin does not do what is asked: the answer has Status, by default 429, and says RetryAfter
	// unless it is zero.
	RefuseTwin
	// DropAfterTwin does what is asked and cuts the connection by RST instead of answering.
	DropAfterTwin
	// SwallowTwin does what is asked and never answers.
	SwallowTwin
	// SlowTwin does what is asked and answers after Delay. Other packets flow.
	SlowTwin
	// MisnameTwin answers with the id of another request, and not with the right one.
	MisnameTwin
	// DuplicateTwin answers twice.
	DuplicateTwin
	// GarbleTwin answers with Bytes for a body, by default the beginning of an object of JSON.
	GarbleTwin
)

// Faults of a notification of desired properties. Each happens to notifications, as many as there
// are clients that are told of a change.
const (
	// SwallowDesired never sends it.
	SwallowDesired FaultKind = iota + 310
	// DuplicateDesired sends it twice.
	DuplicateDesired
	// SlowDesired sends it after Delay. Later ones do not wait, so they come in another order.
	SlowDesired
	// DropAfterDesired ends the connection right after it was sent, in order, so that the client can
	// read it.
	DropAfterDesired
)
