package transport

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
)

// Scope says what an Error affects.
type Scope uint8

const (
	// ScopeOperation: the service refused one message or request; the connection stays up.
	ScopeOperation Scope = iota
	// ScopeConnection: the connection failed or was lost, with everything in flight on it.
	ScopeConnection
)

// String returns "operation" or "connection".
func (s Scope) String() string {
	if s == ScopeConnection {
		return "connection"
	}
	return "operation"
}

// Error is the type of every failure that a transport or the device client reports. Values are
// immutable once returned, and may be shared.
type Error struct {
	Kind  Kind
	Scope Scope
	// Op is the operation that failed.
	Op Op
	// Proto names the protocol: "mqtt", "amqp", "http"; empty for errors of the client itself.
	Proto string
	// RetryAfter is the delay that the service asked for. 0: none. Negative: the service asked for no
	// retry.
	RetryAfter time.Duration
	// Err is the cause, often the protocol's own error type.
	Err error
	// Passed, unless nil, is closed when the cause has passed, so that a retry need not wait longer.
	Passed <-chan struct{}
}

// Error returns protocol, operation, kind and cause, such as "mqtt dial: unauthorized: CONNACK 5
// (not authorized)".
func (e *Error) Error() string {
	text := e.Kind.String()
	if op := e.Op.String(); op != "" {
		text = op + ": " + text
	}
	if e.Proto != "" {
		text = e.Proto + " " + text
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is this error's Kind.
func (e *Error) Is(target error) bool {
	k, ok := target.(Kind)
	return ok && k == e.Kind
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}

// ErrOutcomeUnknown is in the chain of an error about a message or request that was handed to a
// connection and not answered: the service may have received or executed it.
var ErrOutcomeUnknown = errors.New("it was handed over and its outcome is unknown")

// ErrWritten is the result of a message with QoS 0, for Sink.Done: it was written to the network,
// and the peer does not answer it. A client reports it as sent, but it is no sign of the peer.
var ErrWritten = errors.New("it was written, and is not acknowledged")

// ErrViolation is the cause of an *Error of Kind Protocol for a peer that broke the protocol on a
// connection that had worked. Package errfilter makes it retryable, because such a peer may work on
// another connection, unlike one that never spoke the protocol.
var ErrViolation = errors.New("protocol violation on a working connection")

// ErrMaybeDamaged is the cause of an *Error for a failed connection attempt, a request of package
// fileupload, or the download of an update, where the peer's answer may be caused by bytes damaged
// in transit, as with some TLS alerts. errfilter.Damage makes a few of these failures in a row
// retryable.
var ErrMaybeDamaged = errors.New("bytes may have been damaged on the way")

// ErrTakenOver is the cause of an *Error for a connection that the peer ended or refused because
// another one has the same identity. device.Status then names that as the suspect.
var ErrTakenOver = errors.New("another connection has the same identity")

// ErrMayBeLifted is the cause of an *Error of Kind Unauthorized that a service may lift without a
// change at the device, such as for a device that is disabled for a while. Package errfilter makes
// it retryable; RetryAfter says how soon.
var ErrMayBeLifted = errors.New("the service may lift the refusal")

// ErrProxy is the cause of an *Error for the answer of a proxy that does not connect to the hub. It
// says nothing about the hub and the device's credentials.
var ErrProxy = errors.New("a proxy on the way refused")

// Find returns the outermost *Error in err's chain, or nil.
func Find(err error) *Error {
	e, _ := errchain.First(err, isError).(*Error)
	return e
}

// KindOf returns the Kind of the outermost *Error or Kind in err's chain, Unknown if there is none.
func KindOf(err error) Kind {
	switch e := errchain.First(err, hasKind).(type) {
	case *Error:
		if e != nil {
			return e.Kind
		}
	case Kind:
		return e
	}
	return Unknown
}

// Functions instead of closures, because a board allocates for closures that capture variables.

func isError(err error) bool {
	_, ok := err.(*Error)
	return ok
}

func hasKind(err error) bool {
	_, ok := err.(Kind)
	return ok || isError(err)
}
