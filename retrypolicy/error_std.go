//go:build !tinygo

package retrypolicy

import "errors"

// As looks for an error in the context's cause; errors.As itself searches the failure, by Unwrap.
// Boards lack it: it links reflection into each program that retries.
func (e *Error) As(target any) bool { return e.Cause != nil && errors.As(e.Cause, target) }

func isCause(cause, target error) bool { return errors.Is(cause, target) }
