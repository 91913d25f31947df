//go:build !tinygo

package policytest

import (
	"context"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// Retries runs an operation under r, in a bubble, that fails with the errors of the list in order
// and repeats the last one. It returns the number of calls, the total time, and the result.
func Retries(t *testing.T, r retrypolicy.Retrier, list ...error) (calls int, took time.Duration, err error) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		began := time.Now()
		err = r.Do(t.Context(), func(context.Context) error {
			calls++
			return list[min(calls, len(list))-1]
		})
		took = time.Since(began)
	})
	return calls, took, err
}
