package hub

// Faults of twin requests. Each happens to requests of the kind Operation, or of any kind if
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

// Faults of a notification of desired properties. Each happens to notifications; a change causes
// one for each listening client.
const (
	SwallowDesired FaultKind = iota + 310
	DuplicateDesired
	SlowDesired
	DropAfterDesired
)
