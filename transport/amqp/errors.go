package amqp

import (
	"context"
	"errors"
	"os"
	"strconv"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "amqp"

// protocol describes AMQP to package dialer.
var protocol = dialer.Protocol{Name: proto, Secure: "5671", Plain: "5672", Kind: protocolKind}

// ConditionError is the error with which the hub closed the connection, ended a session, detached a
// link or rejected a message. It is the cause of a *transport.Error, reachable with errors.As. What
// is what was ended or rejected: "connection", "session", "link", "message", or empty. Condition is
// AMQP's, such as "amqp:link:detach-forced"; empty when the hub gave none. Description is the hub's
// text, at most 1 KB of it, without secrets and control characters.
type ConditionError = amqpclient.ConditionError

// SASLError is a failed SASL authentication. It is the cause of the *transport.Error of a failed
// dial, reachable with errors.As. Code is the code of the SASL outcome: 1 auth, 2 sys, 3 sys-perm,
// 4 sys-temp.
type SASLError = amqpclient.SASLError

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

// protocolKind is for dialer.Protocol: the Kind of a failed AMQP handshake.
func protocolKind(err error) (kind transport.Kind, hint string, ok bool) {
	if e, ok := errors.AsType[*TokenError](err); ok {
		return statuscode.Of(e.Status, statuscode.Token).Kind, "", true
	}
	return amqpclient.Kind(err)
}

// blameOf returns the object of the condition with which the hub ended a link: BlameNone without a
// condition.
func blameOf(err error) amqpclient.Blame {
	if e, ok := errors.AsType[*ConditionError](err); ok {
		return amqpclient.Blames[e.Condition]
	}
	return amqpclient.BlameNone
}

// failed returns the error of one operation.
func failed(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: scrub.Cause(cause)}
}

// lost returns the error for the end of a live session.
func lost(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpRun, Proto: proto,
		Err: scrub.Cause(cause)}
}

// lossOf is lost with the Kind of the cause: that of the hub's condition, Protocol for a violation,
// Timeout for a peer that is silent or accepts no data, else Network.
func lossOf(cause error) *transport.Error {
	if e := transport.Find(cause); e != nil {
		return lost(e.Kind, e.Err)
	}
	if e, ok := errors.AsType[*ConditionError](cause); ok {
		return lost(amqpclient.EndKind(e), cause)
	}
	if _, ok := errors.AsType[*amqpclient.Violation](cause); ok {
		return lost(transport.Protocol, cause)
	}
	kind := transport.Network
	if errors.Is(cause, os.ErrDeadlineExceeded) || errors.Is(cause, context.DeadlineExceeded) {
		kind = transport.Timeout
	}
	return lost(kind, cause)
}
