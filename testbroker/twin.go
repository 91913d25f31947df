package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Twin is a copy of the twin of a device or module.
type Twin = hub.Twin

// TwinOperation is the operation of a twin request.
type TwinOperation = hub.TwinOperation

// The operations.
const (
	// TwinAny means all operations.
	TwinAny = hub.TwinAny
	// TwinGet reads the twin.
	TwinGet = hub.TwinGet
	// TwinPatch changes the reported properties.
	TwinPatch = hub.TwinPatch
	// TwinSubscribe and TwinUnsubscribe begin and end notifications of desired properties. Only AMQP
	// has them; MQTT uses an ordinary subscription.
	TwinSubscribe   = hub.TwinSubscribe
	TwinUnsubscribe = hub.TwinUnsubscribe
)

// TwinRequest is a client's twin request with the hub's answer.
type TwinRequest = hub.TwinRequest

// Twin returns the twin of a device, or of a module named "deviceID/moduleID".
func (h *Hub) Twin(id string) (Twin, error) { return h.hub.Twin(id) }

// PatchDesired merges a patch, a JSON object, into the desired properties of a device, or of a
// module named "deviceID/moduleID"; null removes a member. Subscribed clients receive the patch; it
// is not kept for other clients. The error is a [*ServiceError].
func (h *Hub) PatchDesired(id, patch string) (version int64, err error) {
	return h.hub.PatchDesired(id, patch)
}

// SetDesired replaces the desired properties. Otherwise it is like [Hub.PatchDesired].
func (h *Hub) SetDesired(id, document string) (version int64, err error) {
	return h.hub.SetDesired(id, document)
}

// PatchTags merges a patch, a JSON object, into the tags of a twin. Devices do not see tags.
func (h *Hub) PatchTags(id, patch string) error { return h.hub.PatchTags(id, patch) }

// WaitReported waits until ok returns true for the twin of a device, or of a module named
// "deviceID/moduleID". It fails when the context ends, the hub is closed, or there is no such twin.
func (h *Hub) WaitReported(ctx context.Context, id string, ok func(Twin) bool) error {
	return h.hub.WaitReported(ctx, id, ok)
}

// TwinLog returns the twin requests of a device, or of a module named "deviceID/moduleID", in order
// of arrival. It is empty when there is no such twin.
func (h *Hub) TwinLog(id string) []TwinRequest { return h.hub.TwinLog(id) }

// MaxMethodPayload is the size limit of the payload of a method call, and of its answer, in bytes.
const MaxMethodPayload = hub.MaxMethodPayload

// DefaultResponseTimeout is how long a call without a ResponseTimeout waits for its answer.
const DefaultResponseTimeout = hub.DefaultResponseTimeout

// MethodCall is a call of a direct method.
type MethodCall = hub.MethodCall

// MethodResult is the answer of a device.
type MethodResult = hub.MethodResult

// MethodRecord is a call and its outcome.
type MethodRecord = hub.MethodRecord

// AnswerFate says how the hub treated an answer.
type AnswerFate = hub.AnswerFate

const (
	// AnswerTaken: it is the result of its call. A call has at most one.
	AnswerTaken = hub.AnswerTaken
	// AnswerRefused: it is not JSON or too large, and its call has failed for that reason.
	AnswerRefused = hub.AnswerRefused
	// AnswerRepeated: its call had an answer before.
	AnswerRepeated = hub.AnswerRepeated
	// AnswerLate: its call had ended without an answer.
	AnswerLate = hub.AnswerLate
	// AnswerElsewhere: it arrived on a connection other than the request's, and does not count.
	AnswerElsewhere = hub.AnswerElsewhere
	// AnswerUnknown: no call has its request id, or the call was forgotten.
	AnswerUnknown = hub.AnswerUnknown
	// AnswerLost: a fault dropped it.
	AnswerLost = hub.AnswerLost
)

// MethodAnswer is an answer as received from a client.
type MethodAnswer = hub.MethodAnswer

// CallMethod calls a direct method of a device, or of a module named "deviceID/moduleID", and waits
// for the answer. The client must have subscribed to methods over MQTT, or have both method links
// over AMQP; the newest connection receives the call. The error is a [*ServiceError]: its Code is
// 404103 if no client can take the call within ConnectTimeout, and 504101 if there is no answer
// within ResponseTimeout. If the context ends first, the error is its cause.
func (h *Hub) CallMethod(ctx context.Context, id string, m MethodCall) (MethodResult, error) {
	return h.hub.CallMethod(ctx, id, m)
}

// MethodLog returns the calls to a device, named as in [Hub.Connections], in order. Calls with an
// invalid name or payload are not included.
func (h *Hub) MethodLog(device string) []MethodRecord { return h.hub.MethodLog(device) }

// MethodAnswers returns the answers of a device, named as in [Hub.Connections], in order of
// arrival, including answers that match no call.
func (h *Hub) MethodAnswers(device string) []MethodAnswer { return h.hub.MethodAnswers(device) }

// ServiceError is an error that the service reports to a back end, and in answers to twin requests.
type ServiceError = hub.ServiceError
