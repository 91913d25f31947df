package amqp

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "amqp"

// protocol describes AMQP to package dialer.
var protocol = dialer.Protocol{Name: proto, Secure: "5671", Plain: "5672", Kind: protocolKind}

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

// TokenError is the hub's refusal of a token. It is the cause of the *transport.Error of a failed
// dial or renewal, reachable with errors.As.
type TokenError struct {
	// Status is the hub's status code, with HTTP's meanings.
	Status int
	// Description is the hub's text, at most 1 KB of it, without secrets and control characters.
	Description string
}

// Error returns status and description.
func (e *TokenError) Error() string {
	return "the hub refused the token with status " + strconv.Itoa(e.Status) + " (" + e.Description + ")"
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

// blame is the object of a condition: it says which operations fail permanently. Only a condition
// about a message removes a message.
type blame uint8

const (
	// blameNone: nothing lasting is wrong; a retry may succeed.
	blameNone blame = iota
	// blameMessage: the content of a message, also when the hub ends a link for it.
	blameMessage
	// blameRequest: a request to the hub. A rejection is about the rejected message. Where the hub
	// ends a link, the request may be any on that link.
	blameRequest
	// blameDevice: the device or its hub. Each request of the device would fail in the same way.
	blameDevice
)

// conditionRow is the meaning of a condition.
type conditionRow struct {
	kind  transport.Kind
	blame blame
}

// conditionTable is the meaning of each condition, for the end of the connection, a session or a
// link and for the rejection of a message.
var conditionTable = map[string]conditionRow{
	"amqp:internal-error":          {transport.Unavailable, blameNone},
	"amqp:not-found":               {transport.NotFound, blameDevice},
	"amqp:unauthorized-access":     {transport.Unauthorized, blameDevice},
	"amqp:decode-error":            {transport.Invalid, blameMessage},
	"amqp:resource-limit-exceeded": {transport.Quota, blameNone},
	"amqp:not-allowed":             {transport.Forbidden, blameRequest},
	"amqp:invalid-field":           {transport.Invalid, blameMessage},
	"amqp:not-implemented":         {transport.Unsupported, blameRequest},
	"amqp:resource-locked":         {transport.Unavailable, blameNone},
	"amqp:precondition-failed":     {transport.Conflict, blameRequest},
	"amqp:resource-deleted":        {transport.NotFound, blameDevice},
	"amqp:illegal-state":           {transport.Protocol, blameRequest},
	"amqp:frame-size-too-small":    {transport.Protocol, blameRequest},

	"amqp:connection:forced":        {transport.Unavailable, blameNone},
	"amqp:connection:framing-error": {transport.Network, blameNone},
	"amqp:connection:redirect":      {transport.Unavailable, blameNone},

	"amqp:session:window-violation":  {transport.Network, blameNone},
	"amqp:session:errant-link":       {transport.Network, blameNone},
	"amqp:session:handle-in-use":     {transport.Network, blameNone},
	"amqp:session:unattached-handle": {transport.Network, blameNone},

	"amqp:link:detach-forced":           {transport.Unavailable, blameNone},
	"amqp:link:transfer-limit-exceeded": {transport.Unavailable, blameNone},
	"amqp:link:message-size-exceeded":   {transport.TooLarge, blameMessage},
	"amqp:link:redirect":                {transport.Unavailable, blameNone},
	"amqp:link:stolen":                  {transport.Unavailable, blameNone},

	"amqp:transaction:unknown-id": {transport.Unavailable, blameNone},
	"amqp:transaction:rollback":   {transport.Unavailable, blameNone},
	"amqp:transaction:timeout":    {transport.Timeout, blameNone},

	"com.microsoft:timeout":                    {transport.Timeout, blameNone},
	"com.microsoft:server-busy":                {transport.Unavailable, blameNone},
	"com.microsoft:operation-cancelled":        {transport.Unavailable, blameNone},
	"com.microsoft:message-lock-lost":          {transport.Conflict, blameRequest},
	"com.microsoft:session-cannot-be-locked":   {transport.Conflict, blameRequest},
	"com.microsoft:link-creation-conflict":     {transport.Unavailable, blameNone},
	"com.microsoft:device-already-exists":      {transport.Conflict, blameRequest},
	"com.microsoft:precondition-failed":        {transport.Conflict, blameRequest},
	"com.microsoft:iot-hub-not-found-error":    {transport.NotFound, blameDevice},
	"com.microsoft:argument-error":             {transport.Invalid, blameMessage},
	"com.microsoft:argument-out-of-range":      {transport.Invalid, blameMessage},
	"com.microsoft:device-container-throttled": {transport.Throttled, blameNone},
	"com.microsoft:quota-exceeded":             {transport.Quota, blameNone},
	"com.microsoft:iot-hub-suspended":          {transport.Forbidden, blameDevice},
	"com.microsoft:entity-disabled":            {transport.Forbidden, blameDevice},

	"proton:io": {transport.Network, blameNone}, // of the library Proton; gateways pass it on
}

// conditionKind returns the Kind of a condition, Unknown for one that is not listed.
func conditionKind(condition string) transport.Kind { return conditionTable[condition].kind }

// blameOf returns the object of the condition with which the hub ended a link: blameNone without a
// condition.
func blameOf(err error) blame {
	if e, ok := errors.AsType[*ConditionError](err); ok {
		return conditionTable[e.Condition].blame
	}
	return blameNone
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

// conditionOf converts the hub's error, which may be nil.
func conditionOf(what string, e *amqp.Error) *ConditionError {
	c := &ConditionError{What: what}
	if e != nil {
		c.Condition, c.Description = scrub.Peer(string(e.Condition)), scrub.Peer(e.Description)
	}
	return c
}

// Texts of untyped errors of the library. A test fails when they change.
const (
	saslPrefix  = "SASL "
	saslRefused = " auth failed with code 0x"
	noMechanism = "no supported auth mechanism"
	wrongHeader = "unexpected protocol"
	badHeader   = "invalid protoHeader"
)

// protocolKind is for dialer.Protocol: the Kind of a failed AMQP handshake.
func protocolKind(err error) (kind transport.Kind, hint string, ok bool) {
	if e, ok := errors.AsType[*SASLError](err); ok {
		return saslMeaning(e.Code).kind, "", true
	}
	if e, ok := errors.AsType[*TokenError](err); ok {
		return statuscode.Of(e.Status, statuscode.Token).Kind, "", true
	}
	if e, ok := errors.AsType[*ConditionError](err); ok {
		return endKind(e), "", true
	}
	if e, ok := errors.AsType[*violation](err); ok && !e.beforeOpen {
		return transport.Protocol, "", true
	} else if ok || errors.Is(err, errNotAMQP) {
		return transport.Protocol, "; check host and port", true
	}
	if errors.Is(err, errNoMechanism) {
		return transport.Unsupported, "", true
	}
	return 0, "", false
}

var (
	errNotAMQP     = errors.New("the peer does not speak AMQP 1.0")
	errNoMechanism = errors.New("the peer offers no SASL mechanism that Options.Auth allows")
)

// endKind is the Kind of an end, of a connection, session or link that had been granted. Unlike a
// refusal, an end with an unknown condition is retried.
func endKind(e *ConditionError) transport.Kind {
	if kind := conditionKind(e.Condition); kind != transport.Unknown {
		return kind
	}
	return transport.Network
}

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
		return errNoMechanism
	case strings.HasPrefix(text, wrongHeader), strings.HasPrefix(text, badHeader):
		return errNotAMQP
	}
	if c := ended(err); c != nil {
		return c
	}
	return err
}

// ended finds the hub's error in an error of the library, nil when there is none.
func ended(err error) *ConditionError {
	if e, ok := errors.AsType[*amqp.ConnError](err); ok {
		if e.RemoteErr == nil {
			return nil // the stream has the cause
		}
		return conditionOf("connection", e.RemoteErr)
	}
	if e, ok := errors.AsType[*amqp.SessionError](err); ok {
		return conditionOf("session", e.RemoteErr)
	}
	if e, ok := errors.AsType[*amqp.LinkError](err); ok {
		return conditionOf("link", e.RemoteErr)
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok {
		return conditionOf("link", e)
	}
	return nil
}

// endedByLibrary returns why the library ended a link or session by itself, nil when the peer ended
// it. The screen replaces messages that would cause it, as far as is known.
func endedByLibrary(err error) error {
	if e, ok := errors.AsType[*amqp.LinkError](err); ok && e.RemoteErr == nil && e.Error() != new(amqp.LinkError).Error() {
		return &violation{fault: faultLibrary, path: "link", problem: scrub.Peer(e.Error())}
	}
	if e, ok := errors.AsType[*amqp.SessionError](err); ok && e.RemoteErr == nil &&
		e.Error() != new(amqp.SessionError).Error() {
		return &violation{fault: faultLibrary, path: "session", problem: scrub.Peer(e.Error())}
	}
	return nil
}

// isConn reports whether err says that the connection has ended.
func isConn(err error) bool { _, ok := errors.AsType[*amqp.ConnError](err); return ok }

// isSession reports whether err says that the session has ended.
func isSession(err error) bool { _, ok := errors.AsType[*amqp.SessionError](err); return ok }

// isLink reports whether err says that the link has ended.
func isLink(err error) bool { _, ok := errors.AsType[*amqp.LinkError](err); return ok }

// failed returns the error of one operation.
func failed(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: scrub.Cause(cause)}
}

// lost returns the error for the end of a live session.
func lost(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpRun, Proto: proto,
		Err: scrub.Cause(cause)}
}

// lossOf is lost with the Kind of the cause: that of the hub's condition, Protocol for a violation,
// Timeout for a peer that is silent or accepts no data, else Network.
func lossOf(cause error) *transport.Error {
	if e := transport.Find(cause); e != nil {
		return lost(e.Kind, e.Err)
	}
	if e, ok := errors.AsType[*ConditionError](cause); ok {
		return lost(endKind(e), cause)
	}
	if _, ok := errors.AsType[*violation](cause); ok {
		return lost(transport.Protocol, cause)
	}
	kind := transport.Network
	if errors.Is(cause, os.ErrDeadlineExceeded) || errors.Is(cause, context.DeadlineExceeded) {
		kind = transport.Timeout
	}
	return lost(kind, cause)
}
