package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// Twin is a copy of the twin of a device or module.
type Twin = hub.Twin

// TwinOperation is what a client asks about its twin.
type TwinOperation = hub.TwinOperation

// The operations.
const (
	// TwinAny stands for all of them.
	TwinAny = hub.TwinAny
	// TwinGet reads the twin.
	TwinGet = hub.TwinGet
	// TwinPatch changes the reported properties.
	TwinPatch = hub.TwinPatch
	// TwinSubscribe and TwinUnsubscribe begin and end notifications of desired properties. Only AMQP
	// has them; over MQTT it is a subscription as any other.
	TwinSubscribe   = hub.TwinSubscribe
	TwinUnsubscribe = hub.TwinUnsubscribe
)

// TwinRequest is something that a client asked about its twin, and what it was told.
type TwinRequest = hub.TwinRequest

// Twin returns the twin of a device, or of a module named "deviceID/moduleID".
func (h *Hub) Twin(id string) (Twin, error) { return h.hub.Twin(id) }

// PatchDesired merges a patch, an object of JSON, into the desired properties of a device, or of a
// module named "deviceID/moduleID": null removes a member. Clients that have subscribed are told of
// it; nothing is kept for others. The error is a [*ServiceError].
func (h *Hub) PatchDesired(id, patch string) (version int64, err error) {
	return h.hub.PatchDesired(id, patch)
}

// SetDesired replaces the desired properties. It is otherwise like [Hub.PatchDesired].
func (h *Hub) SetDesired(id, document string) (version int64, err error) {
	return h.hub.SetDesired(id, document)
}

// PatchTags merges a patch, an object of JSON, into the tags of a twin, which devices do not see.
func (h *Hub) PatchTags(id, patch string) error { return h.hub.PatchTags(id, patch) }

// WaitReported waits until a twin is as ok wants it: that of a device, or of a module named
// "deviceID/moduleID". It fails when the context ends, the hub is closed, or there is no such twin.
func (h *Hub) WaitReported(ctx context.Context, id string, ok func(Twin) bool) error {
	return h.hub.WaitReported(ctx, id, ok)
}

// TwinLog returns what clients have asked about the twin of a device, or of a module named
// "deviceID/moduleID", in the order of arrival. It is empty when there is no such twin.
func (h *Hub) TwinLog(id string) []TwinRequest { return h.hub.TwinLog(id) }

// MaxMethodPayload is the size limit of the payload of a method, and of its answer, in bytes.
const MaxMethodPayload = hub.MaxMethodPayload

// DefaultResponseTimeout is how long a call waits for its answer when it does not say.
const DefaultResponseTimeout = hub.DefaultResponseTimeout

// MethodCall is a call of a direct method.
type MethodCall = hub.MethodCall

// MethodResult is the answer of a device.
type MethodResult = hub.MethodResult

// MethodRecord is a call and what has become of it.
type MethodRecord = hub.MethodRecord

// AnswerFate says what became of an answer.
type AnswerFate = hub.AnswerFate

const (
	// AnswerTaken: it is the result of its call. There is at most one of a call.
	AnswerTaken = hub.AnswerTaken
	// AnswerRefused: it is no JSON or too large, and its call has failed for that.
	AnswerRefused = hub.AnswerRefused
	// AnswerRepeated: its call had one before.
	AnswerRepeated = hub.AnswerRepeated
	// AnswerLate: its call had ended without one.
	AnswerLate = hub.AnswerLate
	// AnswerElsewhere: it came on another connection than the request had gone to, and does not count.
	AnswerElsewhere = hub.AnswerElsewhere
	// AnswerUnknown: there is no call of its request id, or it was forgotten.
	AnswerUnknown = hub.AnswerUnknown
	// AnswerLost: a fault has taken it away.
	AnswerLost = hub.AnswerLost
)

// MethodAnswer is an answer as it came from a client.
type MethodAnswer = hub.MethodAnswer

// CallMethod calls a direct method of a device, or of a module named "deviceID/moduleID", and waits
// for its answer. The client must have subscribed to methods over MQTT, or have both links for them
// over AMQP; the newest connection has the call. The error is a [*ServiceError]: its Code is 404103
// if nobody can take the call within the ConnectTimeout, and 504101 if there is no answer within
// the ResponseTimeout. It is the cause of the context if that ends before.
func (h *Hub) CallMethod(ctx context.Context, id string, m MethodCall) (MethodResult, error) {
	return h.hub.CallMethod(ctx, id, m)
}

// MethodLog returns the calls to a device, named as in [Hub.Connections], in the order in which
// they were made. Calls that no device could be asked to do, because their name or payload is not
// allowed, are not among them.
func (h *Hub) MethodLog(device string) []MethodRecord { return h.hub.MethodLog(device) }

// MethodAnswers returns the answers of a device, named as in [Hub.Connections], in the order in
// which they came: also those that answered nothing.
func (h *Hub) MethodAnswers(device string) []MethodAnswer { return h.hub.MethodAnswers(device) }

// ServiceError is an error as the service tells it to a back end, and in the answers about twins.
type ServiceError = hub.ServiceError
