//go:build !tinygo

package poll_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/classify"
	"github.com/hubline-iot/hubline/retrypolicy/poll"
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
	state, err := poll.Until(context.Background(), &r, readState, func(state string, err error) classify.Info {
		switch {
		case err != nil:
			return classify.Info{} // as Do: retried if that can help
		case state == "failed":
			return classify.Info{Verdict: classify.VerdictFail}
		case state == "done":
			return classify.Info{Verdict: classify.VerdictSucceed}
		}
		return classify.Info{Verdict: classify.VerdictAgain}
	})
	fmt.Println(state, err)

	readQueued := func(context.Context) (string, error) { return "queued", nil }
	_, err = poll.Until(context.Background(), &r, readQueued, func(string, error) classify.Info {
		return classify.Info{Verdict: classify.VerdictAgain}
	})
	fmt.Println(err, errors.Is(err, poll.ErrNotYet))
	// Output:
	// done <nil>
	// out of attempts after 9 retries: the awaited value did not come true
}
