package amqpclient

import (
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// Conditions is the Kind of each condition, for the end of the connection, a session or a link and
// for the rejection of a message. Other conditions have the Kind Unknown.
var Conditions = map[string]transport.Kind{
	"amqp:internal-error":          transport.Unavailable,
	"amqp:not-found":               transport.NotFound,
	"amqp:unauthorized-access":     transport.Unauthorized,
	"amqp:decode-error":            transport.Invalid,
	"amqp:resource-limit-exceeded": transport.Quota,
	"amqp:not-allowed":             transport.Forbidden,
	"amqp:invalid-field":           transport.Invalid,
	"amqp:not-implemented":         transport.Unsupported,
	"amqp:resource-locked":         transport.Unavailable,
	"amqp:precondition-failed":     transport.Conflict,
	"amqp:resource-deleted":        transport.NotFound,
	"amqp:illegal-state":           transport.Protocol,
	"amqp:frame-size-too-small":    transport.Protocol,

	"amqp:connection:forced":        transport.Unavailable,
	"amqp:connection:framing-error": transport.Network,
	"amqp:connection:redirect":      transport.Unavailable,

	"amqp:session:window-violation":  transport.Network,
	"amqp:session:errant-link":       transport.Network,
	"amqp:session:handle-in-use":     transport.Network,
	"amqp:session:unattached-handle": transport.Network,

	"amqp:link:detach-forced":           transport.Unavailable,
	"amqp:link:transfer-limit-exceeded": transport.Unavailable,
	"amqp:link:message-size-exceeded":   transport.TooLarge,
	"amqp:link:redirect":                transport.Unavailable,
	"amqp:link:stolen":                  transport.Unavailable,

	"amqp:transaction:unknown-id": transport.Unavailable,
	"amqp:transaction:rollback":   transport.Unavailable,
	"amqp:transaction:timeout":    transport.Timeout,

	"com.microsoft:timeout":                    transport.Timeout,
	"com.microsoft:server-busy":                transport.Unavailable,
	"com.microsoft:operation-cancelled":        transport.Unavailable,
	"com.microsoft:message-lock-lost":          transport.Conflict,
	"com.microsoft:session-cannot-be-locked":   transport.Conflict,
	"com.microsoft:link-creation-conflict":     transport.Unavailable,
	"com.microsoft:device-already-exists":      transport.Conflict,
	"com.microsoft:precondition-failed":        transport.Conflict,
	"com.microsoft:iot-hub-not-found-error":    transport.NotFound,
	"com.microsoft:argument-error":             transport.Invalid,
	"com.microsoft:argument-out-of-range":      transport.Invalid,
	"com.microsoft:device-container-throttled": transport.Throttled,
	"com.microsoft:quota-exceeded":             transport.Quota,
	"com.microsoft:iot-hub-suspended":          transport.Forbidden,
	"com.microsoft:entity-disabled":            transport.Forbidden,

	"proton:io": transport.Network, // of the library Proton; gateways pass it on
}

// Blame is the object of a condition: it says which operations fail permanently. Only a condition
// about a message removes a message.
type Blame uint8

const (
	// BlameNone: nothing lasting is wrong; a retry may succeed.
	BlameNone Blame = iota
	// BlameMessage: the content of a message, also when the hub ends a link for it.
	BlameMessage
	// BlameRequest: a request to the hub. A rejection is about the rejected message. Where the hub
	// ends a link, the request may be any on that link.
	BlameRequest
	// BlameDevice: the device or its hub. Each request of the device would fail in the same way.
	BlameDevice
)

// Blames is the object of each condition that is not BlameNone.
var Blames = map[string]Blame{
	"amqp:not-found":                         BlameDevice,
	"amqp:unauthorized-access":               BlameDevice,
	"amqp:decode-error":                      BlameMessage,
	"amqp:not-allowed":                       BlameRequest,
	"amqp:invalid-field":                     BlameMessage,
	"amqp:not-implemented":                   BlameRequest,
	"amqp:precondition-failed":               BlameRequest,
	"amqp:resource-deleted":                  BlameDevice,
	"amqp:illegal-state":                     BlameRequest,
	"amqp:frame-size-too-small":              BlameRequest,
	"amqp:link:message-size-exceeded":        BlameMessage,
	"com.microsoft:message-lock-lost":        BlameRequest,
	"com.microsoft:session-cannot-be-locked": BlameRequest,
	"com.microsoft:device-already-exists":    BlameRequest,
	"com.microsoft:precondition-failed":      BlameRequest,
	"com.microsoft:iot-hub-not-found-error":  BlameDevice,
	"com.microsoft:argument-error":           BlameMessage,
	"com.microsoft:argument-out-of-range":    BlameMessage,
	"com.microsoft:iot-hub-suspended":        BlameDevice,
	"com.microsoft:entity-disabled":          BlameDevice,
}

// meaning is the Kind and text of a code.
type meaning struct {
	kind transport.Kind
	text string
}

// saslTable is the status code table of SASL outcomes.
var saslTable = map[int]meaning{
	1: {transport.Unauthorized, "the credentials were refused"},
	2: {transport.Unavailable, "system error in the hub"},
	3: {transport.Forbidden, "permanent system error in the hub"},
	4: {transport.Unavailable, "temporary system error in the hub"},
}

func saslMeaning(code int) meaning {
	if m, ok := saslTable[code]; ok {
		return m
	}
	return meaning{transport.Unknown, "not a SASL code"}
}

// Kind is for dialer.Protocol: the Kind of a failed handshake, or of the end of a connection.
func Kind(err error) (kind transport.Kind, hint string, ok bool) {
	if e, ok := errors.AsType[*SASLError](err); ok {
		return saslMeaning(e.Code).kind, "", true
	}
	if e, ok := errors.AsType[*ConditionError](err); ok {
		return EndKind(e), "", true
	}
	if errors.Is(err, transport.ErrViolation) {
		return transport.Protocol, "", true
	}
	if _, ok := errors.AsType[*Violation](err); ok || errors.Is(err, ErrNotAMQP) {
		return transport.Protocol, "; check host and port", true
	}
	if errors.Is(err, ErrNoMechanism) {
		return transport.Unsupported, "", true
	}
	return 0, "", false
}

// EndKind is the Kind of an end, of a connection, session or link that had been granted. Unlike a
// refusal, an end with an unknown condition is retried.
func EndKind(e *ConditionError) transport.Kind {
	if kind := Conditions[e.Condition]; kind != transport.Unknown {
		return kind
	}
	return transport.Network
}
