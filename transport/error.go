package transport

import "time"

// Scope says what an Error ended.
type Scope uint8

const (
	// Operation: the service refused one message or request; the connection lives.
	Operation Scope = iota
	// Connection: the connection could not be made or is gone, and all that was under way with it.
	Connection
)

// String returns "operation" or "connection".
func (s Scope) String() string {
	if s == Connection {
		return "connection"
	}
	return "operation"
}

// Error is every failure that a transport or the device client reports. Values are not changed after
// they were returned and may be shared.
type Error struct {
	Kind  Kind
	Scope Scope
	// Op is what was being done.
	Op Op
	// Proto names the protocol: "mqtt", "amqp", "http"; empty where the client itself reports.
	Proto string
	// RetryAfter is the wait that the service asked for. 0: it did not ask. Negative: it asked not to be tried again.
	RetryAfter time.Duration
	// Err is the cause, often the protocol's own error type.
	Err error
}

// Error gives protocol, operation, kind and cause, such as "mqtt dial: unauthorized: CONNACK 5 (not authorized)".
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

// Find returns the outermost *Error in err's chain, or nil. It does what errors.As would, without reflection,
// and follows single causes only.
func Find(err error) *Error {
	for err != nil {
		if e, ok := err.(*Error); ok {
			return e
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return nil
		}
		err = u.Unwrap()
	}
	return nil
}

// KindOf returns the Kind of the outermost *Error or Kind in err's chain, Unknown when there is none.
func KindOf(err error) Kind {
	for err != nil {
		switch e := err.(type) {
		case *Error:
			if e == nil {
				return Unknown
			}
			return e.Kind
		case Kind:
			return e
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return Unknown
		}
		err = u.Unwrap()
	}
	return Unknown
}
