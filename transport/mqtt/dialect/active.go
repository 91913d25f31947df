package dialect

import (
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// What stands here is for dialects that need MQTT 5.

// Names are user properties for what MQTT 5 has no property for.
type Names struct {
	// Type is the value of the user property "type". Empty: there is none.
	Type string
	// ID, Created, Encoding and Component are the names for these fields of a message.
	ID, Created, Encoding, Component string
	// ContentType is a name for the content type, which is sent in its own property, too. Empty: none.
	ContentType string
	// EncodingToo sends the encoding "utf-8" by name, in addition to the payload format.
	EncodingToo bool
}

// Active is a Session over MQTT 5 that subscribes in its Handshake only, publishes by itself, and
// whose requests are messages. An engine grants OpSubscribe without asking the peer, for features
// that the dialect does not lack. It acknowledges each message with QoS 1 after Take, so that none
// needs OpSettle. Request and Next are called on one goroutine at a time, which may not be that of
// Take.
type Active interface {
	Session
	// Request says how OpTwinGet, OpTwinPatch or OpRespond is published; its Msg is nil if there is
	// nothing to publish. The reply, unless nil, is passed on at once. Msg is not changed afterwards,
	// as it may wait for the acknowledgement of another one.
	Request(r *transport.Request) (Publication, *transport.Reply)
	// Next returns what the session publishes by itself, one at a time. Without one, ok is false and
	// at is when to call Next again, zero for after the next Take. Next is called after each Take and
	// Request, too.
	Next(sink transport.Sink, now time.Time) (p Publication, at time.Time, ok bool)
}

// A Judge is a Session over MQTT 5 for a service whose reason codes have another meaning. The
// goroutine that reads calls Judge; Take may run meanwhile.
type Judge interface {
	// Judge may change the meaning of a refusal with e.Mean.
	Judge(e *ReasonError)
}

// ReasonError is a refusal by a broker that speaks MQTT 5.
type ReasonError = mqttwire.ReasonError
