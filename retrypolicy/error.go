package retrypolicy

import (
	"errors"
	"strconv"
)

// Error is what Do returns when an operation failed for good: the last real failure, and why there
// was no further attempt. errors.Is finds the Reason, the failure and, where a context ended it,
// the context's error and its cause; errors.As and transport.KindOf find what is inside the
// failure.
type Error struct {
	Reason Reason
	// Retries is how many retries were made.
	Retries int
	// Err is the last failure of the operation itself; nil if it was never run or never failed.
	Err error
	// Cause is context.Cause of the context, if a context ended the series.
	Cause error

	// ended is what the context itself said, or will say: there was no further attempt because its
	// deadline comes first.
	ended error
}

// Error gives the failure and the reason, such as "out of attempts after 2 retries: connection
// refused".
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

// Is reports whether target is the Reason, the context's error or its cause. An end before a
// deadline (PastDeadline, or OutOfTime by Retrier.Limit) is a context.DeadlineExceeded, too.
func (e *Error) Is(target error) bool {
	if r, ok := target.(Reason); ok {
		return r == e.Reason
	}
	return e.ended != nil && e.ended == target || e.Cause != nil && errors.Is(e.Cause, target)
}

// As finds an error in the context's cause; in the failure errors.As looks by itself.
func (e *Error) As(target any) bool { return e.Cause != nil && errors.As(e.Cause, target) }

// Unwrap returns the failure.
func (e *Error) Unwrap() error { return e.Err }
