package retrypolicy

import (
	"context"
	"errors"
)

// Until returns one of these as the failure of an operation that returned no error.
var (
	// ErrNotYet: the attempts ended before judge accepted a value.
	ErrNotYet = errors.New("the awaited value did not come")
	// ErrFailed: judge returned VerdictFail for the value.
	ErrFailed = errors.New("the value is a failure")
)

// Until repeats op until its result is the awaited one, for example until a job that a service runs
// has finished. judge sees the value and the error of each attempt. It may succeed on an error,
// fail on a value, or ask for another attempt on either, with a Kind that selects costs and delays.
// If it returns VerdictUndecided, the outcome is judged as in Do: no error is a success, and
// r.Classify judges an error.
//
// The policy sets the time between two calls, and the limits of Do apply. Until returns the value
// of the last attempt. Its error is nil after a success, otherwise as that of Do. Several
// goroutines may use r at once.
func Until[T any](
	ctx context.Context, r *Retrier, op func(context.Context) (T, error), judge func(T, error) Info,
) (T, error) {
	var value T
	var outcome judged
	err := r.Do(ctx, func(ctx context.Context) error {
		var err error
		value, err = op(ctx)
		info := judge(value, err)
		switch {
		case info.Verdict == VerdictSucceed:
			return nil
		case info.Verdict == VerdictUndecided:
			return err
		case err != nil:
		case info.Verdict == VerdictFail:
			err = ErrFailed
		default:
			err = ErrNotYet
		}
		outcome = judged{info: info, err: err}
		return &outcome
	})
	return value, err
}

// judged is the outcome of an attempt that Until has judged. Do replaces it by err at once, so
// policies, callbacks and callers see err only.
type judged struct {
	info Info
	err  error
}

func (j *judged) Error() string { return j.err.Error() }
func (j *judged) Unwrap() error { return j.err }
