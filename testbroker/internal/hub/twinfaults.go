package hub

// Faults of requests about a twin. Each happens to requests of the kind Operation, or of any if
// Operation is [TwinAny].
const (
	DropBeforeTwin FaultKind = iota + 300
	RefuseTwin
	DropAfterTwin
	SwallowTwin
	SlowTwin
	MisnameTwin
	DuplicateTwin
	GarbleTwin
)

// Faults of a notification of desired properties. Each happens to notifications, as many as there
// are clients that are told of a change.
const (
	SwallowDesired FaultKind = iota + 310
	DuplicateDesired
	SlowDesired
	DropAfterDesired
)
