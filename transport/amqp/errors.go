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
	"github.com/hubline-iot/hubline/transport"
)

const proto = "amqp"

// protocol is what the connection below is made for.
var protocol = dialer.Protocol{Name: proto, Secure: "5671", Plain: "5672", Kind: protocolKind}

// ConditionError is what the hub said when it refused or ended something: the cause of a
// *transport.Error, reachable with errors.As.
type ConditionError struct {
	// What was refused or ended: "connection", "session", "link", "message", or empty.
	What string
	// Condition is AMQP's, such as "amqp:link:detach-forced"; empty when the hub gave none.
	Condition string
	// Description is the hub's text, at most 1 KB of it, without secrets and control characters.
	Description string
}

// Error gives what, condition and description.
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

// TokenError is a token that the hub refused: the cause of the *transport.Error of a failed dial or
// renewal, reachable with errors.As.
type TokenError struct {
	// Status is the hub's, as in HTTP.
	Status int
	// Description is the hub's text, at most 1 KB of it, without secrets and control characters.
	Description string
}

// Error gives status and description.
func (e *TokenError) Error() string {
	return "the hub refused the token with status " + strconv.Itoa(e.Status) + " (" + e.Description + ")"
}

// SASLError is an authentication by SASL that was refused: the cause of the *transport.Error of a
// failed dial, reachable with errors.As.
type SASLError struct {
	// Code is the outcome: 1 auth, 2 sys, 3 sys-perm, 4 sys-temp.
	Code int
}

// Error gives the code and its meaning.
func (e *SASLError) Error() string {
	return "SASL outcome " + strconv.Itoa(e.Code) + " (" + saslMeaning(e.Code).text + ")"
}

// about is what the hub speaks of with a condition, which decides what has to go: only an error
// about a message itself may remove a message.
type about uint8

const (
	// moment: nothing is wrong that lasts; the same may go well later.
	moment about = iota
	// content: a message's, also when the hub ends a link for it.
	content
	// request: what was asked of the hub. Where it rejects a message, that is the one message. Where
	// it ends a link, nobody knows which of all that was said on it.
	request
	// identity: the device or its hub. All that the device asks would meet the same.
	identity
)

// conditionRow is what a condition means.
type conditionRow struct {
	kind  transport.Kind
	about about
}

// conditionTable is what a condition of AMQP means. What it ended, the connection, a link or one
// message, is the Scope's business.
var conditionTable = map[string]conditionRow{
	"amqp:internal-error":          {transport.Unavailable, moment},
	"amqp:not-found":               {transport.NotFound, identity},
	"amqp:unauthorized-access":     {transport.Unauthorized, identity},
	"amqp:decode-error":            {transport.Invalid, content},
	"amqp:resource-limit-exceeded": {transport.Quota, moment},
	"amqp:not-allowed":             {transport.Forbidden, request},
	"amqp:invalid-field":           {transport.Invalid, content},
	"amqp:not-implemented":         {transport.Unsupported, request},
	"amqp:resource-locked":         {transport.Unavailable, moment},
	"amqp:precondition-failed":     {transport.Conflict, request},
	"amqp:resource-deleted":        {transport.NotFound, identity},
	"amqp:illegal-state":           {transport.Protocol, request},
	"amqp:frame-size-too-small":    {transport.Protocol, request},

	"amqp:connection:forced":        {transport.Unavailable, moment},
	"amqp:connection:framing-error": {transport.Network, moment},
	"amqp:connection:redirect":      {transport.Unavailable, moment},

	"amqp:session:window-violation":  {transport.Network, moment},
	"amqp:session:errant-link":       {transport.Network, moment},
	"amqp:session:handle-in-use":     {transport.Network, moment},
	"amqp:session:unattached-handle": {transport.Network, moment},

	"amqp:link:detach-forced":           {transport.Unavailable, moment},
	"amqp:link:transfer-limit-exceeded": {transport.Unavailable, moment},
	"amqp:link:message-size-exceeded":   {transport.TooLarge, content},
	"amqp:link:redirect":                {transport.Unavailable, moment},
	"amqp:link:stolen":                  {transport.Unavailable, moment},

	"amqp:transaction:unknown-id": {transport.Unavailable, moment},
	"amqp:transaction:rollback":   {transport.Unavailable, moment},
	"amqp:transaction:timeout":    {transport.Timeout, moment},

	"com.microsoft:timeout":                    {transport.Timeout, moment},
	"com.microsoft:server-busy":                {transport.Unavailable, moment},
	"com.microsoft:operation-cancelled":        {transport.Unavailable, moment},
	"com.microsoft:message-lock-lost":          {transport.Conflict, request},
	"com.microsoft:session-cannot-be-locked":   {transport.Conflict, request},
	"com.microsoft:link-creation-conflict":     {transport.Unavailable, moment},
	"com.microsoft:device-already-exists":      {transport.Conflict, request},
	"com.microsoft:precondition-failed":        {transport.Conflict, request},
	"com.microsoft:iot-hub-not-found-error":    {transport.NotFound, identity},
	"com.microsoft:argument-error":             {transport.Invalid, content},
	"com.microsoft:argument-out-of-range":      {transport.Invalid, content},
	"com.microsoft:device-container-throttled": {transport.Throttled, moment},
	"com.microsoft:quota-exceeded":             {transport.Quota, moment},
	"com.microsoft:iot-hub-suspended":          {transport.Forbidden, identity},
	"com.microsoft:entity-disabled":            {transport.Forbidden, identity},

	"proton:io": {transport.Network, moment}, // a library's own, but it does cross gateways
}

// conditionKind is total: Unknown for what is not listed.
func conditionKind(condition string) transport.Kind { return conditionTable[condition].kind }

// aboutOf is what the hub spoke of when it ended a link: a moment, if it did not say.
func aboutOf(err error) about {
	if e, ok := errors.AsType[*ConditionError](err); ok {
		return conditionTable[e.Condition].about
	}
	return moment
}

// meaning is what a number stands for.
type meaning struct {
	kind transport.Kind
	text string
}

// tokenTable is what the answer to a token means, by its status.
var tokenTable = map[int]transport.Kind{
	400: transport.Invalid,
	401: transport.Unauthorized,
	403: transport.Quota, // too many tokens on one connection
	404: transport.NotFound,
	408: transport.Timeout,
	410: transport.NotFound,
	429: transport.Throttled,
	500: transport.Unavailable,
	502: transport.Unavailable,
	503: transport.Unavailable,
	504: transport.Unavailable,
}

func tokenKind(status int) transport.Kind {
	kind, ok := tokenTable[status]
	if !ok && status > 500 && status < 600 {
		return transport.Unavailable
	}
	return kind
}

// saslTable is what a SASL outcome means.
var saslTable = map[int]meaning{
	1: {transport.Unauthorized, "the credentials were refused"},
	2: {transport.Unavailable, "error in the hub"},
	3: {transport.Forbidden, "permanent error in the hub"},
	4: {transport.Unavailable, "transient error in the hub"},
}

func saslMeaning(code int) meaning {
	if m, ok := saslTable[code]; ok {
		return m
	}
	return meaning{transport.Unknown, "not a code of SASL"}
}

// conditionOf makes a ConditionError of what the hub said, which may be nothing.
func conditionOf(what string, e *amqp.Error) *ConditionError {
	c := &ConditionError{What: what}
	if e != nil {
		c.Condition, c.Description = scrub.Peer(string(e.Condition)), scrub.Peer(e.Description)
	}
	return c
}

// Texts of the library's that stand for errors without a type. A test notices when they change.
const (
	saslPrefix  = "SASL "
	saslRefused = " auth failed with code 0x"
	noMechanism = "no supported auth mechanism"
	wrongHeader = "unexpected protocol"
	badHeader   = "invalid protoHeader"
)

// protocolKind is for dialer.Protocol: what a failed handshake of AMQP means.
func protocolKind(err error) (kind transport.Kind, hint string, ok bool) {
	if e, ok := errors.AsType[*SASLError](err); ok {
		return saslMeaning(e.Code).kind, "", true
	}
	if e, ok := errors.AsType[*TokenError](err); ok {
		return tokenKind(e.Status), "", true
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
	errNoMechanism = errors.New("the peer offers no way to authenticate that the options allow")
)

// endKind is the Kind of what ended something that had been granted. Unlike a refusal, an end
// without a reason that we know is worth another try.
func endKind(e *ConditionError) transport.Kind {
	if kind := conditionKind(e.Condition); kind != transport.Unknown {
		return kind
	}
	return transport.Network
}

// handshakeError makes of the library's error of a handshake one that has a type.
func handshakeError(err error) error {
	text := err.Error()
	if _, code, ok := strings.Cut(text, saslRefused); ok && strings.HasPrefix(text, saslPrefix) {
		digits, _, _ := strings.Cut(code, ":")
		n, _ := strconv.ParseInt(strings.TrimSpace(digits), 16, 16)
		return &SASLError{int(n)} // the library's text may repeat what the peer said about the credentials
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

// ended finds what the hub said in an error of the library; nil when it is no word of the hub's.
func ended(err error) *ConditionError {
	if e, ok := errors.AsType[*amqp.ConnError](err); ok {
		if e.RemoteErr == nil {
			return nil // the stream knows more
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

// refusedHere returns why the library ended a link or session by itself, nil when the peer ended
// it. The screen lets messages pass whose values the library cannot decode: they end the link only.
func refusedHere(err error) error {
	if e, ok := errors.AsType[*amqp.LinkError](err); ok && e.RemoteErr == nil && e.Error() != new(amqp.LinkError).Error() {
		return &violation{fault: faultLibrary, path: "link", problem: scrub.Peer(e.Error())}
	}
	if e, ok := errors.AsType[*amqp.SessionError](err); ok && e.RemoteErr == nil &&
		e.Error() != new(amqp.SessionError).Error() {
		return &violation{fault: faultLibrary, path: "session", problem: scrub.Peer(e.Error())}
	}
	return nil
}

// isConn reports whether err says that the connection is gone.
func isConn(err error) bool { _, ok := errors.AsType[*amqp.ConnError](err); return ok }

// isSession reports whether err says that the session is gone.
func isSession(err error) bool { _, ok := errors.AsType[*amqp.SessionError](err); return ok }

// isLink reports whether err says that the link is gone.
func isLink(err error) bool { _, ok := errors.AsType[*amqp.LinkError](err); return ok }

// failed is the error of one operation.
func failed(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: scrub.Cause(cause)}
}

// lost is the *transport.Error for the end of a live session.
func lost(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpRun, Proto: proto,
		Err: scrub.Cause(cause)}
}

// lossOf is lost with the Kind that the cause has: what the hub said, Protocol when it broke the
// protocol, Timeout when it fell silent or takes no data, else Network.
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
