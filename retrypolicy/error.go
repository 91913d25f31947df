package retrypolicy

import (
	"errors"
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// Error is the error of Do: the last failure of the operation, and the Reason why there was no
// further attempt. errors.Is matches the Reason, the failure and, if a context ended the series,
// the context's error and its cause. errors.As and transport.KindOf look into the failure.
//
// After the end of the caller's context (Cancelled) the Kind is transport.Cancelled, which is never
// retryable, and errors.As finds the cause of context.WithCancelCause.
type Error struct {
	Reason Reason
	// Retries is the number of retries made.
	Retries int
	// Err is the last failure of the operation itself; nil if it was never run or never failed.
	Err error
	// Cause is context.Cause of the context, if a context ended the series.
	Cause error

	// ended is the context's error, or the error that the context would return at a deadline that
	// comes before the next attempt.
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

// Is reports whether target is the Reason, the context's error or its cause. If the series stopped
// because of a deadline still ahead (PastDeadline, or OutOfTime by Retrier.Timeout),
// context.DeadlineExceeded matches too. If the caller's context or its deadline ended the series
// (Cancelled, PastDeadline), the Kind transport.Cancelled matches, so errfilter does not let the
// error be retried.
func (e *Error) Is(target error) bool {
	if r, ok := target.(Reason); ok {
		return r == e.Reason
	}
	if target == transport.Cancelled && (e.Reason == Cancelled || e.Reason == PastDeadline) {
		return true
	}
	return e.ended != nil && e.ended == target || e.Cause != nil && errors.Is(e.Cause, target)
}

// As looks for an error in the context's cause; errors.As itself searches the failure, by Unwrap.
func (e *Error) As(target any) bool { return e.Cause != nil && errors.As(e.Cause, target) }

// Unwrap returns the failure. With Reason Cancelled it returns an error that wraps
// transport.Cancelled, the context's error, its cause and the failure.
func (e *Error) Unwrap() error {
	if e.Reason != Cancelled {
		return e.Err
	}
	c := &cancelled{wrapped: make([]error, 0, 4)}
	for _, err := range [...]error{transport.Cancelled, e.ended, e.Cause, e.Err} {
		if err != nil {
			c.wrapped = append(c.wrapped, err)
		}
	}
	return c
}

// cancelled makes errfilter see the end of the context before the failure, whose Kind may be
// retryable.
type cancelled struct{ wrapped []error }

func (*cancelled) Error() string     { return reasonText[Cancelled] }
func (c *cancelled) Unwrap() []error { return c.wrapped }
