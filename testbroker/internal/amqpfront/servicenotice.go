package amqpfront

import (
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/testbroker/internal/amqp"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
)

// noticeTypes are the content types of notices. Some clients require them.
var noticeTypes = map[notices.Kind]wire.Symbol{
	notices.Feedback:          "application/vnd.microsoft.iothub.feedback.json",
	notices.FileNotifications: "application/vnd.microsoft.iothub.filenotification.json",
}

// A noticeReceiver is a link on which a back end receives notices.
type noticeReceiver struct {
	serviceEnd
	kind notices.Kind
}

// noticeNode returns the function that opens links for a kind of notices.
func noticeNode(kind notices.Kind) func(s serviceEnd) backLink {
	return func(s serviceEnd) backLink { return &noticeReceiver{s, kind} }
}

func (r *noticeReceiver) queue() *notices.Queue { return r.link.conn.hub.Notices(r.kind) }

func (r *noticeReceiver) attached() { r.queue().Receive(r) }
func (r *noticeReceiver) detached() { r.queue().Unreceive(r) }
func (r *noticeReceiver) credit()   { r.queue().Kick() }

// Deliver sends a notice if the client has given credit. The user id, the time as an
// annotation, the content type and a tag of 16 bytes are what some clients require.
func (r *noticeReceiver) Deliver(n *notices.Notice, tag [16]byte) notices.Outcome {
	limit := r.link.Asked.MaxMessageSize
	switch {
	case !r.link.Ready():
		return notices.Later
	case limit != 0 && uint64(len(n.Body)) > limit:
		return notices.Never
	}
	payload, err := wire.AppendMessage(nil, &wire.Message{
		MessageAnnotations: wire.Map{
			{Key: wire.Symbol("iothub-enqueuedtime"), Value: wire.Timestamp(n.Enqueued.UnixMilli())},
			{Key: wire.Symbol("iothub-deliverycount"), Value: uint8(n.Deliveries)},
		},
		Properties: &wire.Properties{
			UserID: []byte(r.link.conn.hub.Host), ContentType: noticeTypes[r.kind], ContentEncoding: "utf-8",
		},
		Data: [][]byte{n.Body},
	})
	if err != nil || limit != 0 && uint64(len(payload)) > limit {
		return notices.Never
	}
	settled := r.link.Asked.SndSettleMode == wire.SendSettled
	switch {
	case !r.link.Send(amqp.Outgoing{Tag: tag[:], Settled: settled, Payload: payload}):
		return notices.Later
	case settled:
		return notices.Settled
	}
	return notices.Sent
}

// settled ends a notice that was accepted or rejected. Any other outcome makes it wait for its next
// delivery.
func (r *noticeReceiver) settled(tag []byte, state wire.DeliveryState) wire.DeliveryState {
	again := true
	switch state.(type) {
	case nil:
		state = &wire.Released{}
	case *wire.Accepted, *wire.Rejected:
		again = false
	}
	if !r.queue().SettleTag(r, string(tag), again) {
		return &wire.Rejected{Error: wire.Errorf(lockLost, "412002 DeviceMessageLockLost: the lock of the notice has ended")}
	}
	return state
}
