package mqttwire

import (
	"time"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// ReasonError is a refusal by a broker that speaks MQTT 5: the cause of the *transport.Error of a
// failed dial, of a lost connection, of a message or of a subscription, reachable with errors.As.
type ReasonError struct {
	// Packet is the type of the packet that has the code: "CONNACK", "PUBACK", "SUBACK" or
	// "DISCONNECT".
	Packet string
	// Code is the reason code, section 2.4 of the standard.
	Code byte
	// Filter is the topic filter that was refused, for a SUBACK.
	Filter string
	// Reason is the broker's reason string: 1 KB at most, without secrets and control characters.
	// Empty if there is none, and on boards.
	Reason string
	// Server is where the broker sends the client, its server reference, bounded like Reason. Only
	// dialects follow it.
	Server string

	own *verdict // nil: the table's
}

// verdict is what a code means to one service.
type verdict struct {
	kind  transport.Kind
	after time.Duration
	cause error
}

// Mean makes kind what the code means here, with the delay before the next attempt, 0 for none, and
// the cause that errors.Is finds, nil for none.
func (e *ReasonError) Mean(kind transport.Kind, after time.Duration, cause error) {
	e.own = &verdict{kind, after, cause}
}

// Packets that have reason codes.
const (
	PacketConnack    = "CONNACK"
	PacketPuback     = "PUBACK"
	PacketSuback     = "SUBACK"
	PacketDisconnect = "DISCONNECT"
)

// NewReasonError returns the error for a code in a packet, with its reason string and its server
// reference, which are nil without.
func NewReasonError(packet string, code byte, reason, server []byte) *ReasonError {
	return &ReasonError{Packet: packet, Code: code, Reason: peerText(reason), Server: peerText(server)}
}

func peerText(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return statuscode.PeerText(string(b))
}

// Error returns packet, code, meaning, and what the broker added.
func (e *ReasonError) Error() string {
	const digits = "0123456789ABCDEF"
	text := e.Packet + " 0x" + string([]byte{digits[e.Code>>4], digits[e.Code&15]}) + " (" + e.meaning().Text + ")"
	if e.Filter != "" {
		text += " for " + e.Filter
	}
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	if e.Server != "" {
		text += "; the broker names another server: " + e.Server
	}
	return text
}

// Kind returns the Kind of the refusal.
func (e *ReasonError) Kind() transport.Kind {
	if e.own != nil {
		return e.own.kind
	}
	return e.meaning().Kind
}

// Unwrap returns transport.ErrViolation when a connection that worked ended because one side broke
// the protocol, so that the client connects again, and transport.ErrTakenOver when another client
// took the session over.
func (e *ReasonError) Unwrap() error {
	switch {
	case e.own != nil && e.own.cause != nil:
		return e.own.cause
	case e.Packet == PacketDisconnect && e.Kind() == transport.Protocol:
		return transport.ErrViolation
	case e.Code == takenOver:
		return transport.ErrTakenOver
	}
	return nil
}

func (e *ReasonError) meaning() Meaning { return ReasonMeaning(e.Packet, e.Code) }

// takenOver is the reason code for a client id that another connection uses.
const takenOver = 0x8e

// TakenOverDelay is the least delay before a device connects again whose session another client
// took over. Without it, two devices with the same client id would end each other's connections
// without a pause.
const TakenOverDelay = 10 * time.Second

// Ended returns the error of a session that the broker ended with a DISCONNECT.
func Ended(e *ReasonError) *transport.Error {
	loss := Loss(e.Kind(), e)
	switch {
	case e.own != nil:
		loss.RetryAfter = e.own.after
	case e.Code == takenOver:
		loss.RetryAfter = TakenOverDelay
	}
	return loss
}

// Denied returns the error of a dial that a CONNACK ended.
func Denied(e *ReasonError) *transport.Error {
	denied := DialError(e)
	if e.own != nil {
		denied.RetryAfter = e.own.after
	}
	return denied
}

// Accepted reports whether a reason code is no failure.
func Accepted(code byte) bool { return code < firstFailure }

const firstFailure = 0x80

// reason is a row of the table of reason codes: the text, and the Kind in each packet, Unknown
// where the code is not allowed.
type reason struct {
	text                                string
	connack, puback, suback, disconnect transport.Kind
}

const (
	unavailable  = transport.Unavailable
	unauthorized = transport.Unauthorized
	throttled    = transport.Throttled
	unsupported  = transport.Unsupported
	forbidden    = transport.Forbidden
	invalid      = transport.Invalid
	quota        = transport.Quota
	tooLarge     = transport.TooLarge
	broken       = transport.Protocol
	moved        = transport.NotFound
	no           = transport.Unknown
)

// reasons has a row for each reason code that is a failure, table 2-6, from 0x80 on. Codes without
// a reason count as temporary: refusing for good would lose messages. PUBREC has the codes of
// PUBACK, and UNSUBACK those of SUBACK. An AUTH has no failures: authentication fails with CONNACK
// or DISCONNECT. A moved server is NotFound, so that an assignment is asked for again.
//
// A DISCONNECT about one of our packets is a violation, which is retried: that packet may be one
// message, which package device finds. Such codes would otherwise end the client.
var reasons = [...]reason{
	0x80 - firstFailure: {"unspecified error", unavailable, unavailable, unavailable, unavailable},
	0x81 - firstFailure: {"malformed packet", broken, no, no, broken},
	0x82 - firstFailure: {"protocol error", broken, no, no, broken},
	0x83 - firstFailure: {"implementation specific error", unavailable, unavailable, unavailable, unavailable},
	0x84 - firstFailure: {"MQTT 5 not supported", unsupported, no, no, no},
	0x85 - firstFailure: {"client identifier not valid", unauthorized, no, no, no},
	0x86 - firstFailure: {"bad user name or password", unauthorized, no, no, no},
	0x87 - firstFailure: {"not authorized", unauthorized, forbidden, forbidden, unauthorized},
	0x88 - firstFailure: {"server unavailable", unavailable, no, no, no},
	0x89 - firstFailure: {"server busy", throttled, no, no, throttled},
	0x8a - firstFailure: {"banned", forbidden, no, no, no},
	0x8b - firstFailure: {"server shutting down", no, no, no, unavailable},
	0x8c - firstFailure: {"bad authentication method", unsupported, no, no, unsupported},
	0x8d - firstFailure: {"keep-alive timeout", no, no, no, transport.Timeout},
	takenOver - firstFailure: {"session taken over: another client connected with this client id", no, no, no,
		unavailable},
	0x8f - firstFailure: {"topic filter invalid", no, no, invalid, invalid},
	0x90 - firstFailure: {"topic name invalid", invalid, invalid, no, broken},
	0x91 - firstFailure: {"packet identifier in use", no, unavailable, unavailable, no},
	0x92 - firstFailure: {"packet identifier not found", no, unavailable, no, no}, // in PUBREL and PUBCOMP
	0x93 - firstFailure: {"receive maximum exceeded", no, unavailable, no, broken},
	0x94 - firstFailure: {"topic alias invalid", no, no, no, broken},
	0x95 - firstFailure: {"packet too large", tooLarge, tooLarge, no, broken},
	0x96 - firstFailure: {"message rate too high", no, no, no, throttled},
	0x97 - firstFailure: {"quota exceeded", quota, quota, quota, quota},
	0x98 - firstFailure: {"administrative action", no, no, no, unavailable},
	0x99 - firstFailure: {"payload format invalid", invalid, invalid, no, broken},
	0x9a - firstFailure: {"retain not supported", unsupported, unsupported, no, broken},
	0x9b - firstFailure: {"QoS not supported", unsupported, unsupported, no, broken},
	0x9c - firstFailure: {"use another server", unavailable, no, no, unavailable},
	0x9d - firstFailure: {"server moved", moved, unavailable, no, moved},
	0x9e - firstFailure: {"shared subscriptions not supported", no, no, unsupported, unsupported},
	0x9f - firstFailure: {"connection rate exceeded", throttled, no, no, throttled},
	0xa0 - firstFailure: {"maximum connect time", no, no, no, unavailable},
	0xa1 - firstFailure: {"subscription identifiers not supported", no, no, unsupported, unsupported},
	0xa2 - firstFailure: {"wildcard subscriptions not supported", no, no, unsupported, unsupported},
}

// ReasonMeaning returns the meaning of a reason code in a packet. Brokers acknowledge messages and
// subscriptions with codes of other packets: such a code means the same there. Other codes that the
// packet must not have are violations.
func ReasonMeaning(packet string, code byte) Meaning {
	switch i := int(code) - firstFailure; {
	case i >= len(reasons):
		return reserved
	case i >= 0:
		r := &reasons[i]
		kind := no
		switch packet {
		case PacketConnack:
			kind = r.connack
		case PacketPuback:
			kind = r.acknowledging(r.puback)
		case PacketSuback:
			kind = r.acknowledging(r.suback)
		case PacketDisconnect:
			kind = r.disconnect
		}
		if kind == no {
			kind = broken
		}
		return Meaning{kind, r.text}
	case packet == PacketDisconnect && code == 0:
		return Meaning{transport.Network, "normal disconnection"}
	}
	return Meaning{broken, "no failure"}
}

// acknowledging returns the Kind of the code in an acknowledgement, for which the table has own.
func (r *reason) acknowledging(own transport.Kind) transport.Kind {
	switch {
	case own != no:
		return own
	case r.connack != no:
		return r.connack
	}
	return r.disconnect
}
