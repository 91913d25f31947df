package amqpclient

import (
	"errors"
	"strconv"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// ConditionError is the error with which the hub closed the connection, ended a session, detached a
// link or rejected a message. It is the cause of a *transport.Error, reachable with errors.As.
type ConditionError struct {
	// What was ended or rejected: "connection", "session", "link", "message", or empty.
	What string
	// Condition is AMQP's, such as "amqp:link:detach-forced"; empty when the hub gave none.
	Condition string
	// Description is the hub's text, at most 1 KB of it, without secrets and control characters.
	Description string
}

// Error returns what was ended, the condition and the description.
func (e *ConditionError) Error() string {
	text := e.Condition
	if text == "" {
		text = "no reason given"
	}
	if e.What != "" {
		text = e.What + " ended or refused by the hub: " + text
	}
	if e.Description != "" {
		text += " (" + e.Description + ")"
	}
	return text
}

// Unwrap returns transport.ErrTakenOver when another connection has the device's links: the hub's
// LinkCreationConflict, or AMQP's "attached elsewhere".
func (e *ConditionError) Unwrap() error {
	switch e.Condition {
	case "com.microsoft:link-creation-conflict", "amqp:link:stolen":
		return transport.ErrTakenOver
	}
	return nil
}

// ConditionOf converts the hub's error, which may be nil.
func ConditionOf(what string, e *wire.Error) *ConditionError {
	c := &ConditionError{What: what}
	if e != nil {
		c.Condition, c.Description = scrub.Peer(string(e.Condition)), scrub.Peer(e.Description)
	}
	return c
}

// SASLError is a failed SASL authentication. It is the cause of the *transport.Error of a failed
// dial, reachable with errors.As.
type SASLError struct {
	// Code is the code of the SASL outcome: 1 auth, 2 sys, 3 sys-perm, 4 sys-temp.
	Code int
}

// Error returns the code and its meaning.
func (e *SASLError) Error() string {
	return "SASL outcome " + strconv.Itoa(e.Code) + " (" + saslMeaning(e.Code).text + ")"
}

// ErrNoMechanism is the cause of a handshake in which no SASL mechanism suits both sides.
var ErrNoMechanism = errors.New("the peer offers no SASL mechanism that this side allows")

// ErrWantsSASL is the cause of a handshake without SASL that the peer answered with the protocol
// header of SASL, which it insists on [AMQP 1.0, 2.2].
var ErrWantsSASL = errors.New("the peer insists on SASL")
