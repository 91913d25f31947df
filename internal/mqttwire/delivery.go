package mqttwire

import "github.com/hubline-iot/hubline/transport"

// Proto is the protocol's name in errors.
const Proto = "mqtt"

// TwinID reports whether a request for the twin may have the id. A hub chooses the id of its
// answer, so others, which a client has for itself, are ignored.
func TwinID(id uint64) bool { return id < 1<<31 }

// MaxInfo bounds each text inside a hub's user name, which must not exceed 65535 bytes when all is
// percent-encoded.
const MaxInfo = 4096

// Inbound is reusable memory for deliveries, one after the other.
type Inbound struct {
	delivery transport.Delivery
	message  transport.Message
	ref      [2]byte
}

// Delivery returns the delivery of a PUBLISH for dialect.Session.Take: with its payload, its RETAIN
// and DUP, and its packet id (0 with QoS 0) as the reference. It is valid until the next call.
func (in *Inbound) Delivery(body []byte, id uint16, retain, redelivered bool) *transport.Delivery {
	in.message = transport.Message{Body: body, Retain: retain, Properties: in.message.Properties[:0]}
	in.delivery = transport.Delivery{Redelivered: redelivered, Msg: &in.message}
	in.ref = [2]byte{byte(id >> 8), byte(id)}
	if in.delivery.Ref = in.ref[:]; id == 0 {
		in.delivery.Ref = in.ref[:0]
	}
	return &in.delivery
}

// Unasked passes a delivery on that dialect.Session.Take ignored. Without an acknowledgement it
// would hold its place among the messages that a broker sends before the first is acknowledged, and
// with enough of them no other message would ever come. One without a reference is only reported,
// so it never waits. A dialect that sets Ref to nil has handled the message.
func Unasked(to *Tap, topic []byte, d *transport.Delivery) {
	if d.Kind != 0 || d.Ref == nil {
		return
	}
	if len(d.Ref) > 0 || !to.replied {
		d.Name = topic
		to.Deliver(d)
	}
}
