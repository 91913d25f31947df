package amqpconn

import (
	"errors"
	"strconv"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpscreen"
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
func ConditionOf(what string, e *amqp.Error) *ConditionError {
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

// Texts of untyped errors of the library. A test fails when they change.
const (
	saslPrefix  = "SASL "
	saslRefused = " auth failed with code 0x"
	noMechanism = "no supported auth mechanism"
	wrongHeader = "unexpected protocol"
	badHeader   = "invalid protoHeader"
)

// ErrNoMechanism is the cause of a handshake in which no SASL mechanism suits both sides.
var ErrNoMechanism = errors.New("the peer offers no SASL mechanism that this side allows")

// ErrWantsSASL is the cause of a handshake without SASL that the peer answered with the protocol
// header of SASL, which it insists on [AMQP 1.0, 2.2].
var ErrWantsSASL = errors.New("the peer insists on SASL")

// handshakeError gives the library's error of a handshake a type.
func handshakeError(err error) error {
	text := err.Error()
	if _, code, ok := strings.Cut(text, saslRefused); ok && strings.HasPrefix(text, saslPrefix) {
		digits, _, _ := strings.Cut(code, ":")
		n, _ := strconv.ParseInt(strings.TrimSpace(digits), 16, 16)
		return &SASLError{int(n)} // the library's text may repeat the peer's text about the credentials
	}
	switch {
	case strings.HasPrefix(text, noMechanism):
		return ErrNoMechanism
	case strings.HasPrefix(text, wrongHeader), strings.HasPrefix(text, badHeader):
		return amqpscreen.ErrNotAMQP
	}
	if c := Ended(err); c != nil {
		return c
	}
	return err
}

// Ended finds the hub's error in an error of the library, nil when there is none.
func Ended(err error) *ConditionError {
	if e, ok := errors.AsType[*amqp.ConnError](err); ok {
		if e.RemoteErr == nil {
			return nil // the stream has the cause
		}
		return ConditionOf("connection", e.RemoteErr)
	}
	if e, ok := errors.AsType[*amqp.SessionError](err); ok {
		return ConditionOf("session", e.RemoteErr)
	}
	if e, ok := errors.AsType[*amqp.LinkError](err); ok {
		return ConditionOf("link", e.RemoteErr)
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return ConditionOf("link", e)
	}
	return nil
}

// endedByLibrary returns why the library ended a link or session by itself, nil when the peer ended
// it. The screen replaces messages that would cause it, as far as is known.
func endedByLibrary(err error) error {
	if e, ok := errors.AsType[*amqp.LinkError](err); ok && e.RemoteErr == nil && e.Error() != new(amqp.LinkError).Error() {
		return amqpscreen.EndedByLibrary("link", e.Error())
	}
	if e, ok := errors.AsType[*amqp.SessionError](err); ok && e.RemoteErr == nil &&
		e.Error() != new(amqp.SessionError).Error() {
		return amqpscreen.EndedByLibrary("session", e.Error())
	}
	return nil
}

// IsConn reports whether err says that the connection has ended.
func IsConn(err error) bool { _, ok := errors.AsType[*amqp.ConnError](err); return ok }

// IsSession reports whether err says that the session has ended.
func IsSession(err error) bool { _, ok := errors.AsType[*amqp.SessionError](err); return ok }

// IsLink reports whether err says that the link has ended.
func IsLink(err error) bool { _, ok := errors.AsType[*amqp.LinkError](err); return ok }
