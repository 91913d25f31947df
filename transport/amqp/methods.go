package amqp

import (
	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// methods is the pair for direct methods.
type methods struct{ pair }

func (c *methods) init(s *session) {
	c.pair = pair{s: s, name: "methods", address: s.addr.methods, wait: amqp.SenderSettleModeSettled, take: c.take}
}

// A call's Ref is its correlation id: a byte for the type, and the id.
const (
	refUUID = 'u'
	refText = 's'
)

// take takes a call. One that cannot be answered is left alone.
func (c *methods) take(m *amqp.Message) {
	name, _ := m.ApplicationProperties["IoThub-methodname"].(string)
	if m.Properties == nil || name == "" {
		return
	}
	var ref []byte
	switch id := m.Properties.CorrelationID.(type) {
	case amqp.UUID:
		ref = append([]byte{refUUID}, id[:]...)
	case string:
		ref = append([]byte{refText}, id...)
	default:
		return
	}
	c.s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Methods, Name: []byte(name), Ref: ref, Msg: &transport.Message{Body: bodyOf(m)}})
}

// respond sends the answer to a call.
func (c *methods) respond(r *transport.Request) {
	var id any
	switch {
	case len(r.Ref) == 17 && r.Ref[0] == refUUID:
		id = amqp.UUID(r.Ref[1:])
	case len(r.Ref) > 1 && r.Ref[0] == refText:
		id = string(r.Ref[1:])
	default:
		return
	}
	c.send(&amqp.Message{
		Properties:            &amqp.MessageProperties{CorrelationID: id},
		ApplicationProperties: map[string]any{"IoThub-status": int32(r.Status)},
		Data:                  [][]byte{append([]byte(nil), r.Body...)},
	})
}
