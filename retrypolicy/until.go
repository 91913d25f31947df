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
// An outcome that it leaves Undecided is judged as in Do; a nil judge leaves all. Until returns the
// value of the last attempt, and an error as Do.
func Until[T any](
	ctx context.Context, r *Retrier, op func(context.Context) (T, error), judge func(T, error) Info,
) (T, error) {
	run := runner{r: *r, caller: ctx, ctx: ctx}
	var value T
	if err := run.begin(); err != nil {
		return value, err
	}
	defer run.end()
	for {
		if err := run.admit(); err != nil {
			return value, err
		}
		try := run.try()
		var failure error
		value, failure = op(try)
		var info Info
		if judge != nil {
			if info = judge(value, failure); failure == nil {
				failure = unwanted(info.Verdict)
			}
		}
		if over, err := run.ended(try, info, failure); over {
			return value, err
		}
	}
}

// unwanted returns the failure of an attempt that returned no error.
func unwanted(v Verdict) error {
	switch v {
	case VerdictAgain:
		return ErrNotYet
	case VerdictFail:
		return ErrFailed
	case VerdictUndecided, VerdictSucceed:
	}
	return nil
}
