package retrypolicy

import (
	"errors"
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// Error is the error of Do: the last failure of the operation, and the Reason why there was no
// further attempt. The errors of Kind RetryExpired of a device client wrap one. errors.Is matches
// the Reason, the failure and, if a context ended the series, the context's error and its cause.
// errors.As and transport.KindOf look into the failure.
//
// After the end of the caller's context errors.Is matches transport.Cancelled too, errors.As finds
// the cause of context.WithCancelCause (not with TinyGo), and neither errfilter nor an outer Do
// retries the error. As the cause of a *transport.Error it has no such effect: that error's Kind
// counts.
//
// It has no remaining delay: ask the budget (such as the method Status of a budget.Breaker), or use
// an Operation, which returns the Decision.
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

// Is reports whether target is the Reason, the context's error or its cause, also for a deadline
// still ahead, or then transport.Cancelled.
func (e *Error) Is(target error) bool {
	switch t := target.(type) {
	case Reason:
		return t == e.Reason
	case transport.Kind:
		if t == transport.Cancelled && e.EndedByContext() {
			return true
		}
	}
	return e.ended != nil && e.ended == target || e.Cause != nil && errors.Is(e.Cause, target)
}

// As looks for an error in the context's cause; errors.As itself searches the failure, by Unwrap.
func (e *Error) As(target any) bool { return e.Cause != nil && errors.As(e.Cause, target) }

// EndedByContext reports whether the caller's context or its deadline ended the series. Package
// errfilter asks it.
func (e *Error) EndedByContext() bool {
	return e.Reason == ReasonCancelled || e.Reason == ReasonPastDeadline
}

// Unwrap returns the failure.
func (e *Error) Unwrap() error { return e.Err }
