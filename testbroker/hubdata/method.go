package hubdata

import (
	"fmt"
	"time"
)

// MaxMethodPayload is the size limit of the payload of a method call, and of its answer, in bytes.
const MaxMethodPayload = 128 << 10

// MethodCall is a call of a direct method.
type MethodCall struct {
	// Name is printable ASCII without space and without any of $()<>@,;:\"/[]?={}.
	Name string
	// Payload is JSON, or empty.
	Payload []byte
	// ResponseTimeout is the time limit of the answer, from the delivery on. Default:
	// 30 s.
	ResponseTimeout time.Duration
	// ConnectTimeout is how long the call waits for a device that is not connected. Default: no wait.
	ConnectTimeout time.Duration
}

// MethodResult is the answer of a device.
type MethodResult struct {
	// Status is the status code that the device returned.
	Status int
	// Payload is JSON, or empty.
	Payload []byte
}

// MethodRecord is a call and its outcome.
type MethodRecord struct {
	// DeviceID and ModuleID name the target. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	MethodCall
	// RequestID is the id of the request; empty if the call was not sent.
	RequestID string
	// Protocol and Connection are those of the connection that carried the request.
	Protocol   Protocol
	Connection uint64
	// Deliveries is how often the request was put on the connection. Only a fault makes it more than
	// one.
	Deliveries int
	// Called, Delivered and Ended are times of the hub's clock. Delivered is the time of the first
	// delivery, zero if there was none. Ended is zero while the call is open.
	Called, Delivered, Ended time.Time
	// Result is the accepted answer when the call has ended with a nil Err.
	Result MethodResult
	Err    error
}

// AnswerFate says how the hub treated an answer.
type AnswerFate uint8

const (
	// AnswerTaken: it is the result of its call. A call has at most one.
	AnswerTaken AnswerFate = iota + 1
	// AnswerRefused: it is not JSON or too large, and its call has failed for that reason.
	AnswerRefused
	// AnswerRepeated: its call had an answer before.
	AnswerRepeated
	// AnswerLate: its call had ended without an answer.
	AnswerLate
	// AnswerElsewhere: it arrived on a connection other than the request's, and does not count.
	AnswerElsewhere
	// AnswerUnknown: no call has its request id, or the call was forgotten.
	AnswerUnknown
	// AnswerLost: a fault dropped it.
	AnswerLost
)

var answerFateNames = [...]string{
	AnswerTaken: "taken", AnswerRefused: "refused", AnswerRepeated: "repeated", AnswerLate: "late",
	AnswerElsewhere: "elsewhere",
	AnswerUnknown:   "unknown", AnswerLost: "lost",
}

// String returns the fate in lower case.
func (f AnswerFate) String() string {
	if f != 0 && int(f) < len(answerFateNames) {
		return answerFateNames[f]
	}
	return fmt.Sprintf("AnswerFate(%d)", uint8(f))
}

// MethodAnswer is an answer as received from a client.
type MethodAnswer struct {
	// DeviceID and ModuleID name the client. ModuleID is empty for the device itself.
	DeviceID, ModuleID string
	RequestID          string
	MethodResult
	Fate AnswerFate
	// Protocol and Connection are those by which it arrived. Received is when, by the hub's clock.
	Protocol   Protocol
	Connection uint64
	Received   time.Time
}
