package hub

// Faults of a call of a method. Each happens to requests that are about to be sent to a client, of
// the method Method or of any if Method is empty.
const (
	DropBeforeMethod FaultKind = iota + 320
	SwallowMethod
	SlowMethod
	DuplicateMethod
	GarbleMethod
	DropAfterMethod
	MisnameMethod
	RefuseMethod
)

// Faults of an answer to a method. Each happens to answers whose request id is that of a call of
// the method Method, or of any if Method is empty.
const (
	DropOnMethodAnswer FaultKind = iota + 330
	SwallowMethodAnswer
	SlowMethodAnswer
	DropAfterMethodAnswer
)
