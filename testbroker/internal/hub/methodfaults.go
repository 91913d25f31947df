package hub

// Faults of a call of a method. Each happens to requests that are about to be sent to a client, of
// the method Method or of any if Method is empty.
const (
	// DropBeforeMethod cuts the connection by RST instead of sending the request.
	DropBeforeMethod FaultKind = iota + 320
	// SwallowMethod never sends it.
	SwallowMethod
	// SlowMethod sends it after Delay, unless the connection has ended; the time-out for the answer
	// runs meanwhile.
	SlowMethod
	// DuplicateMethod sends it twice, with the same request id.
	DuplicateMethod
	// GarbleMethod sends it with Bytes for its payload, by default the beginning of an object of JSON.
	GarbleMethod
	// DropAfterMethod ends the connection right after it was sent, in order, so that the client can
	// read it.
	DropAfterMethod
	// MisnameMethod sends it with another request id, so that the answer is to nothing.
	MisnameMethod
	// RefuseMethod does not send it: the call fails with the code of Status, by default 429.
	RefuseMethod
)

// Faults of an answer to a method. Each happens to answers whose request id is that of a call of
// the method Method, or of any if Method is empty.
const (
	// DropOnMethodAnswer cuts the connection by RST; the answer is lost.
	DropOnMethodAnswer FaultKind = iota + 330
	// SwallowMethodAnswer loses the answer.
	SwallowMethodAnswer
	// SlowMethodAnswer has the answer arrive after Delay.
	SlowMethodAnswer
	// DropAfterMethodAnswer takes the answer and cuts the connection by RST.
	DropAfterMethodAnswer
)
