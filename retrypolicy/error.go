package retrypolicy

import (
	"errors"
	"strconv"
)

// Error is what Do returns when an operation failed for good: the last real failure, and why there was no further try. errors.Is finds the Reason, the
// failure and, where a context ended it, the context's error; errors.As and transport.KindOf find what is inside the failure.
type Error struct {
	Reason Reason
	// Retries is how many retries were made.
	Retries int
	// Err is the last failure of the operation itself; nil if it was never run or never failed.
	Err error
	// Cause is the context's, if a context ended the series.
	Cause error
}

// Error gives the failure and the reason, such as "out of attempts after 2 retries: connection refused".
func (e *Error) Error() string {
	text := e.Reason.String()
	switch e.Retries {
	case 0:
	case 1:
		text += " after 1 retry"
	default:
		text += " after " + strconv.Itoa(e.Retries) + " retries"
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is reports whether target is the Reason, or the context's error.
func (e *Error) Is(target error) bool {
	if r, ok := target.(Reason); ok {
		return r == e.Reason
	}
	return e.Cause != nil && errors.Is(e.Cause, target)
}

// Unwrap returns the failure.
func (e *Error) Unwrap() error { return e.Err }
