// Package judged lets package poll tell Do its judgement of an attempt.
package judged

import "github.com/hubline-iot/hubline/retrypolicy/classify"

// Error is the outcome of an attempt that has been judged. Do replaces it by Err at once, so
// policies, callbacks and callers see Err only.
type Error struct {
	Info classify.Info
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }
