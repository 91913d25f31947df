package wire

import (
	"context"
	"errors"
	"io"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// Violation says how the hub broke MQTT.
type Violation struct{ Err error }

// NewViolation makes a Violation of a text.
func NewViolation(text string) Violation { return Violation{errors.New(text)} }

func (v Violation) Error() string { return v.Err.Error() }

// Unwrap returns what was wrong.
func (v Violation) Unwrap() error { return v.Err }

// ErrNoPong is the loss of a connection on which nothing came any more.
var ErrNoPong = errors.New("the hub did not answer a ping in time")

// Invalid is the error of a dial with wrong options or credentials.
func Invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Scope: transport.Connection, Op: transport.OpDial, Proto: Proto,
		Err: errors.New(text)}
}

// Refused is the error of one operation.
func Refused(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: Proto, Err: cause}
}

// TooLarge is the error for a message of which size bytes are at hand where limit is the most.
func TooLarge(size, limit int) *transport.Error {
	e := operr.TooLarge(size, limit)
	e.Proto = Proto
	return e
}

// Loss is the error for the end of a live session, always worth a retry: Network or Timeout.
func Loss(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpRun, Proto: Proto, Err: cause}
}

// Kept makes the error of a failed dial of one that was mapped to a Kind already.
func Kept(e *transport.Error) *transport.Error {
	kept := *e
	kept.Scope, kept.Op, kept.Proto = transport.Connection, transport.OpDial, Proto
	return &kept
}

// DialError is the error for a dial that failed, as far as it can be told without the types of
// networks and TLS: an *transport.Error keeps its Kind, refusals and violations have theirs, all
// else is Network, or Timeout when it says so.
func DialError(err error) *transport.Error {
	if e := transport.Find(err); e != nil {
		return Kept(e)
	}
	kind, hint := transport.Network, ""
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if e, ok := cause.(*ConnackError); ok {
			kind = ConnackMeaning(e.Code).Kind
			break
		}
		if _, ok := cause.(Violation); ok {
			kind, hint = transport.Protocol, HintPeer
			break
		}
	}
	if kind == transport.Network && TimedOut(err) {
		kind = transport.Timeout
	}
	return &transport.Error{Kind: kind, Scope: transport.Connection, Op: transport.OpDial, Proto: Proto,
		Err: Hint(err, hint)}
}

// HintPeer is for what is not MQTT.
const HintPeer = "; check host and port"

// Hint adds what helps to a cause.
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

// TimedOut reports whether err says that a time was over: it, or one in its chain, is
// context.DeadlineExceeded or has a method Timeout that says so.
func TimedOut(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() || err == context.DeadlineExceeded {
			return true
		}
	}
	return false
}

// HubClosed is the clean end of a connection: io.EOF said more clearly.
type HubClosed struct{}

func (HubClosed) Error() string { return "the hub closed the connection" }

// Unwrap returns io.EOF.
func (HubClosed) Unwrap() error { return io.EOF }
