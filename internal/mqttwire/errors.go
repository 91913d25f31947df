package mqttwire

import (
	"errors"
	"io"
	"strconv"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// An error that a function of this file wraps may come from a callback: its secrets are hidden.

// Violation is a violation of MQTT by the hub. Code is the reason code of MQTT 5 to tell it with, 0
// for the one that follows from Err.
type Violation struct {
	Err  error
	Code byte
}

// NewViolation returns a Violation with this text.
func NewViolation(text string) Violation { return Violation{Err: errors.New(text)} }

func (v Violation) Error() string { return v.Err.Error() }

// Unwrap returns the error inside.
func (v Violation) Unwrap() error { return v.Err }

// ErrNoPong is the loss of a connection on which no packet arrived in time.
var ErrNoPong = errors.New("the hub did not answer a ping in time")

// Invalid returns the error of a dial with wrong options or credentials. Inlined, it would take
// 4 KB of a program for ARM.
//
//go:noinline
func Invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: Proto,
		Err: errors.New(text)}
}

// CheckWill returns the error for a will that no CONNECT can carry. Nil is no will.
func CheckWill(w *transport.Message) error {
	if w == nil {
		return nil
	}
	if err := w.Validate(); err != nil {
		return Invalid("options: Will: " + err.Error())
	}
	if len(w.Body) > MaxText {
		return Invalid("options: Will has a body of " + strconv.Itoa(len(w.Body)) + " bytes; give 65535 at most")
	}
	return nil
}

// Refused returns the error of one operation. Inlined, it would take 2 KB of a program for ARM.
//
//go:noinline
func Refused(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: Proto, Err: scrub.Cause(cause)}
}

// TooLarge returns the error for a message of size bytes, body of them in its body, where limit is
// the most.
func TooLarge(size, body, limit int) *transport.Error {
	e := operr.TooLarge(size, body, limit)
	e.Proto = Proto
	return e
}

// Fits returns an error that says which part of a message is too large: limit is the most bytes of
// a message, topic the length of its topic.
func Fits(m *transport.Message, limit, topic int) *transport.Error {
	if size := m.Size(); size > limit {
		return TooLarge(size, len(m.Body), limit)
	}
	if topic > MaxText {
		return longTopic(topic)
	}
	return nil
}

// longTopic returns the error for a message whose topic has size bytes, more than MaxText. Such a
// topic has the properties in it.
func longTopic(size int) *transport.Error {
	return Refused(transport.OpSend, transport.TooLarge, errors.New("the topic, which has the properties percent-encoded "+
		"in it, has "+strconv.Itoa(size)+" bytes and MQTT takes 65535; send fewer or shorter properties"))
}

// Loss returns the error for the end of a live session, which is always worth a retry. kind is
// Network or Timeout.
func Loss(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpRun, Proto: Proto,
		Err: scrub.Cause(cause)}
}

// Kept returns a copy of e as the error of a failed dial, with the Kind that e has.
func Kept(e *transport.Error) *transport.Error {
	kept := *e
	kept.Scope, kept.Op, kept.Proto, kept.Err = transport.ScopeConnection, transport.OpDial, Proto, scrub.Cause(e.Err)
	return &kept
}

// Unreached returns the error of a dial to another host than that of the credentials. It is worth a
// retry, whatever err is.
func Unreached(err error) *transport.Error {
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: Proto,
		Err: Hint(scrub.Cause(err), "; the hub has named this server in place of its own")}
}

// A Refusal is an error with a Kind of its own: *ConnackError or *ReasonError. The interface keeps
// the table of MQTT 5 from programs that do not speak it.
type Refusal interface{ Kind() transport.Kind }

// IsPeers reports whether an error of a handshake is about the peer's MQTT packets, not about the
// connection.
func IsPeers(err error) bool {
	switch err.(type) { //nolint:errorlint // not wrapped
	case Refusal, Violation, *transport.Error:
		return true
	}
	return false
}

// DialError returns the error for a dial that failed, without the types of package net and TLS: an
// *transport.Error keeps its Kind, refusals and violations have theirs, all others are Network, or
// Timeout when TimedOut says so.
func DialError(err error) *transport.Error {
	if e := transport.Find(err); e != nil {
		return Kept(e)
	}
	kind, hint := transport.Network, ""
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if e, ok := cause.(Refusal); ok {
			kind = e.Kind()
			break
		}
		if _, ok := cause.(Violation); ok {
			kind, hint = transport.Protocol, HintPeer
			break
		}
		if _, ok := cause.(Unanswered); ok {
			hint = HintUnanswered
		}
	}
	if kind == transport.Network && TimedOut(err) {
		kind, hint = transport.Timeout, ""
	}
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: Proto,
		Err: Hint(scrub.Cause(err), hint)}
}

// FirstBytes returns the error for a peer whose first packet is no CONNACK of its version:
// [MQTT-3.2.0-1]. It names the protocol that the peer speaks instead, as far as its first bytes
// show it.
func FirstBytes(in []byte) error {
	h, _, _ := Next(in)
	newer := h.Type == Connack && h.Body > 2 && len(in) > h.Size+1 && in[h.Size+1] >= 0x80
	switch text := string(in[:min(len(in), 5)]); {
	case newer && in[h.Size+1] == 0x84:
		return &transport.Error{Kind: transport.Unsupported,
			Err: errors.New("the broker takes MQTT 5 only; set Options.Protocol of package mqtt")}
	case newer:
		return NewViolation("the peer answers CONNECT with a CONNACK of MQTT 5")
	case text == "HTTP/":
		return NewViolation("the peer answers CONNECT with HTTP")
	case len(text) >= 4 && text[:4] == "AMQP":
		return NewViolation("the peer answers CONNECT with AMQP")
	case len(text) >= 2 && text[:2] == "\x15\x03":
		return NewViolation("the peer answers CONNECT with a TLS alert: this port wants TLS")
	}
	return NewViolation("the peer's first packet is not a CONNACK")
}

// Unanswered marks the end of a connection in place of a CONNACK.
type Unanswered struct{ Err error }

func (u Unanswered) Error() string { return u.Err.Error() }

// Unwrap returns the error inside.
func (u Unanswered) Unwrap() error { return u.Err }

// HintUnanswered is the hint for Unanswered.
const HintUnanswered = " in place of the answer to CONNECT; this port may speak another protocol"

// HintPeer is the hint for a peer that does not speak MQTT.
const HintPeer = "; check host and port"

// Hint appends a hint to an error's text; an empty hint changes nothing.
func Hint(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &hintError{err, hint}
}

type hintError struct {
	error
	hint string
}

func (e *hintError) Error() string { return e.error.Error() + e.hint }
func (e *hintError) Unwrap() error { return e.error }

// TimedOut reports whether err is a timeout: it, or an error in its chain, has a method Timeout
// that returns true, as context.DeadlineExceeded has.
func TimedOut(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
			return true
		}
	}
	return false
}

// HubClosed is the orderly end of a connection: io.EOF with a clearer text.
type HubClosed struct{}

func (HubClosed) Error() string { return "the hub closed the connection" }

// Unwrap returns io.EOF.
func (HubClosed) Unwrap() error { return io.EOF }

// DialectError returns the error of a dial whose dialect refused credentials or options: an
// *transport.Error keeps its Kind, any other error is Invalid.
func DialectError(err error) error {
	if transport.Find(err) != nil {
		return err
	}
	return &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: Proto,
		Err: scrub.Cause(err)}
}

// HandshakeError returns the error of a dial whose dialect ended the handshake: an *transport.Error
// keeps its Kind, any other error is Unavailable.
func HandshakeError(err error) *transport.Error {
	if e := transport.Find(err); e != nil {
		return Kept(e)
	}
	return &transport.Error{Kind: transport.Unavailable, Scope: transport.ScopeConnection, Op: transport.OpDial,
		Proto: Proto,
		Err:   scrub.Cause(err)}
}
