// Package poll repeats an operation until its result is the awaited one, for example until a job
// that a service runs has finished:
//
//	state, err := poll.Until(ctx, &retrypolicy.Retrier{Policy: retrypolicy.Fixed{Delay: time.Second}},
//		readState, func(state string, err error) classify.Info {
//			switch {
//			case err != nil:
//				return classify.Info{} // as Do: retried if that can help
//			case state == "running":
//				return classify.Info{Verdict: classify.VerdictAgain}
//			case state == "failed":
//				return classify.Info{Verdict: classify.VerdictFail}
//			}
//			return classify.Info{Verdict: classify.VerdictSucceed}
//		})
//
// The policy sets the time between two calls, and the limits of retrypolicy.Do apply. Where only
// errors matter, retrypolicy.Do and retrypolicy.DoValue are enough.
package poll

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/retrypolicy/internal/judged"
)

// Until returns one of these as the failure of an operation that returned no error.
var (
	// ErrNotYet: the attempts ended before judge accepted a value.
	ErrNotYet = errors.New("the awaited value did not come")
	// ErrFailed: judge returned Fail for the value.
	ErrFailed = errors.New("the value is a failure")
)

// Until runs op until judge ends it. judge sees the value and the error of each attempt. It may
// succeed on an error, fail on a value, or ask for another attempt on either, with a Kind that
// selects costs and delays. If it returns Undecided, the outcome is judged as in Do: no error is a
// success, and r.Classify judges an error.
//
// Until returns the value of the last attempt. Its error is nil after a success, otherwise as that
// of Do. Several goroutines may use r at once.
func Until[T any](
	ctx context.Context, r *retrypolicy.Retrier, op func(context.Context) (T, error), judge func(T, error) classify.Info,
) (T, error) {
	var value T
	var outcome judged.Error
	err := r.Do(ctx, func(ctx context.Context) error {
		var err error
		value, err = op(ctx)
		info := judge(value, err)
		switch {
		case info.Verdict == classify.VerdictSucceed:
			return nil
		case info.Verdict == classify.VerdictUndecided:
			return err
		case err != nil:
		case info.Verdict == classify.VerdictFail:
			err = ErrFailed
		default:
			err = ErrNotYet
		}
		outcome = judged.Error{Info: info, Err: err}
		return &outcome
	})
	return value, err
}
