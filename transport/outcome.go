package transport

import "errors"

// ErrOutcomeUnknown is in the chain of an error about a message or a request that was handed over,
// and of which is not known what became of it: the service may have it, or may have done it.
var ErrOutcomeUnknown = errors.New("it was handed over and its outcome is unknown")

// OutcomeUnknown is e with ErrOutcomeUnknown in its chain, once.
func OutcomeUnknown(e *Error) *Error {
	if errors.Is(e, ErrOutcomeUnknown) {
		return e
	}
	own := *e
	own.Err = &unknownOutcome{e.Err}
	return &own
}

type unknownOutcome struct{ cause error }

func (u *unknownOutcome) Error() string {
	if u.cause == nil {
		return ErrOutcomeUnknown.Error()
	}
	return ErrOutcomeUnknown.Error() + "; " + u.cause.Error()
}

func (u *unknownOutcome) Unwrap() []error {
	if u.cause == nil {
		return []error{ErrOutcomeUnknown}
	}
	return []error{ErrOutcomeUnknown, u.cause}
}
