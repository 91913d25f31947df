package hub

// Faults of a method call. Each happens to requests about to be sent to a client, of the method
// Method or of any if Method is empty.
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

// Faults of a method answer. Each happens to answers whose request id belongs to a call of the
// method Method, or of any if Method is empty.
const (
	DropOnMethodAnswer FaultKind = iota + 330
	SwallowMethodAnswer
	SlowMethodAnswer
	DropAfterMethodAnswer
)
