//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
)

// A job of a service runs for a while. Until asks for its state every 10 ms, ten times at most.
func ExampleUntil() {
	states := []string{"queued", "running", "done"}
	readState := func(context.Context) (string, error) {
		state := states[0]
		states = states[1:]
		return state, nil
	}
	r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 10,
		Policy: retrypolicy.Fixed{Delay: 10 * time.Millisecond}}}
	state, err := retrypolicy.Until(context.Background(), &r, readState, func(state string, err error) retrypolicy.Info {
		switch {
		case err != nil:
			return retrypolicy.Info{} // as Do: retried if that can help
		case state == "failed":
			return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
		case state == "done":
			return retrypolicy.Info{Verdict: retrypolicy.VerdictSucceed}
		}
		return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain}
	})
	fmt.Println(state, err)

	readQueued := func(context.Context) (string, error) { return "queued", nil }
	_, err = retrypolicy.Until(context.Background(), &r, readQueued, func(string, error) retrypolicy.Info {
		return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain}
	})
	fmt.Println(err, errors.Is(err, retrypolicy.ErrNotYet))
	// Output:
	// done <nil>
	// out of attempts after 9 retries: the awaited value did not come true
}
