package testbroker

import (
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Links returns how many AMQP links of a kind are attached for a device, named as in
// [Hub.Connections]. [fault.LinkAny] counts all except the links for tokens.
func (h *Hub) Links(device string, kind fault.LinkKind) int { return h.amqp.Links(device, kind) }

// DetachLinks detaches the AMQP links of a kind that are attached for a device, named as in
// [Hub.Connections], and returns their number. An empty error is not sent.
func (h *Hub) DetachLinks(device string, kind fault.LinkKind, e hubdata.AMQPError) int {
	return h.amqp.DetachLinks(device, kind, e)
}

// EndSessions ends the AMQP sessions in which links are attached for a device, named as in
// [Hub.Connections], and returns their number. An empty error is not sent.
func (h *Hub) EndSessions(device string, e hubdata.AMQPError) int {
	return h.amqp.EndSessions(device, e)
}

// CloseAMQP closes the AMQP connections of a device, named as in [Hub.Connections], and returns
// their number. An empty error is not sent.
func (h *Hub) CloseAMQP(device string, e hubdata.AMQPError) int { return h.amqp.CloseAMQP(device, e) }
