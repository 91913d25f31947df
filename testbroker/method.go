package testbroker

import (
	"context"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// CallMethod calls a direct method of a device, or of a module named "deviceID/moduleID", and waits
// for the answer. The client must have subscribed to methods over MQTT, or have both method links
// over AMQP; the newest connection receives the call. The error is a [*hubdata.ServiceError]: its
// Code is 404103 if no client can take the call within ConnectTimeout, and 504101 if there is no
// answer within ResponseTimeout. If the context ends first, the error is its cause.
func (h *Hub) CallMethod(ctx context.Context, id string, m hubdata.MethodCall) (hubdata.MethodResult, error) {
	return h.hub.InvokeMethod(ctx, identity.SplitIdentity(id), m)
}

// MethodLog returns the calls to a device, named as in [Hub.Connections], in order. Calls with an
// invalid name or payload are not included.
func (h *Hub) MethodLog(device string) []hubdata.MethodRecord { return h.hub.MethodLog(device) }

// MethodAnswers returns the answers of a device, named as in [Hub.Connections], in order of
// arrival, including answers that match no call.
func (h *Hub) MethodAnswers(device string) []hubdata.MethodAnswer { return h.hub.MethodAnswers(device) }
