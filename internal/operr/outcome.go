package operr

import (
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// OutcomeUnknown returns e with transport.ErrOutcomeUnknown once in its chain.
func OutcomeUnknown(e *transport.Error) *transport.Error {
	if errors.Is(e, transport.ErrOutcomeUnknown) {
		return e
	}
	own := *e
	own.Err = &unknownOutcome{e.Err}
	return &own
}

type unknownOutcome struct{ cause error }

func (u *unknownOutcome) Error() string {
	if u.cause == nil {
		return transport.ErrOutcomeUnknown.Error()
	}
	return transport.ErrOutcomeUnknown.Error() + "; " + u.cause.Error()
}

func (u *unknownOutcome) Unwrap() []error {
	if u.cause == nil {
		return []error{transport.ErrOutcomeUnknown}
	}
	return []error{transport.ErrOutcomeUnknown, u.cause}
}
