//go:build !tinygo

package retrypolicy_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A device that was just created may be unknown to some servers for a moment, so NotFound is worth
// a retry here.
func ExampleClassifier() {
	notFoundYet := func(err error) retrypolicy.Info {
		if errors.Is(err, transport.NotFound) {
			return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.NotFound}
		}
		return retrypolicy.Info{} // left to retrypolicy.Classify
	}
	r := retrypolicy.Retrier{
		Policy:   retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.Fixed{Delay: time.Millisecond}},
		Classify: notFoundYet,
	}
	for _, failure := range []error{transport.NotFound, transport.Forbidden} {
		fmt.Println(r.Do(context.Background(), func(context.Context) error { return failure }))
	}
	// Output:
	// out of attempts after 2 retries: not found
	// not retryable: forbidden
}
