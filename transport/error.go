package transport

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
)

// Scope says what an Error ended.
type Scope uint8

const (
	// Operation: the service refused one message or request; the connection lives.
	Operation Scope = iota
	// Connection: the connection could not be made or is gone, and all that was in flight with it.
	Connection
)

// String returns "operation" or "connection".
func (s Scope) String() string {
	if s == Connection {
		return "connection"
	}
	return "operation"
}

// Error is every failure that a transport or the device client reports. Values are not changed
// after they were returned and may be shared.
type Error struct {
	Kind  Kind
	Scope Scope
	// Op is what was being done.
	Op Op
	// Proto names the protocol: "mqtt", "amqp", "http"; empty where the client itself reports.
	Proto string
	// RetryAfter is the wait that the service asked for. 0: it did not ask. Negative: it asked not to
	// be tried again.
	RetryAfter time.Duration
	// Err is the cause, often the protocol's own error type.
	Err error
	// Passed, unless nil, is closed when the cause has passed, so that a retry need not wait any
	// longer.
	Passed <-chan struct{}
}

// Error gives protocol, operation, kind and cause, such as "mqtt dial: unauthorized: CONNACK 5 (not
// authorized)".
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

// ErrOutcomeUnknown is in the chain of an error about a message or a request that was handed to a
// connection and was not answered: the service may have it, or may have carried it out.
var ErrOutcomeUnknown = errors.New("it was handed over and its outcome is unknown")

// ErrViolation is a cause of an *Error of Kind Protocol for a peer that broke the protocol on a
// connection that had worked. Package errfilter lets it be retried: such a peer may do better on
// another connection, whereas one that never spoke the protocol will not.
var ErrViolation = errors.New("protocol violation on a working connection")

// ErrMaybeDamaged is a cause of an *Error for a connection that could not be made, where the peer's
// refusal may be about bytes that were damaged on the way, as some TLS alerts are. errfilter.Damage
// lets a few of these failures in a row be retried.
var ErrMaybeDamaged = errors.New("bytes may have been damaged on the way")

// Find returns the outermost *Error in err's chain, or nil. It does what errors.As would, without
// reflection.
func Find(err error) *Error {
	e, _ := errchain.First(err, isError).(*Error)
	return e
}

// KindOf returns the Kind of the outermost *Error or Kind in err's chain, Unknown when there is
// none.
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

// Functions without variables of their own, because a board allocates for those that have some.

func isError(err error) bool {
	_, ok := err.(*Error)
	return ok
}

func hasKind(err error) bool {
	_, ok := err.(Kind)
	return ok || isError(err)
}
