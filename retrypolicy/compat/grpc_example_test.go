//go:build !tinygo

package compat_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/transport"
)

// One throttle per server: once half of the tokens are spent, there are no retries until enough
// calls succeed.
func ExampleGRPC_throttle() {
	throttle, err := budget.NewRetryThrottle(10, 0.1)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := throttle.Wrap(compat.GRPC{Attempts: 3, Initial: time.Second, Max: time.Minute, Multiplier: 2})
	failure := retrypolicy.Attempt{Kind: transport.Unavailable, Err: transport.Unavailable, Rand: 1 << 63}
	calls := make([]retrypolicy.Series, 5)
	for i := range calls {
		calls[i] = retrypolicy.Inner(p, retrypolicy.Start{})
		calls[i].Report(retrypolicy.VerdictAgain, failure)
	}
	failure.Retry = 1
	fmt.Println(throttle.Tokens(), calls[0].Decide(failure))
	retrypolicy.Inner(p, retrypolicy.Start{}).Report(retrypolicy.VerdictSucceed, retrypolicy.Attempt{})
	fmt.Println(throttle.Tokens(), calls[1].Decide(failure))
	// Output:
	// 5 stop: retry quota exceeded
	// 5.1 retry after 1s
}

// rpcError represents the error of a gRPC library.
type rpcError struct {
	code    uint32 // codes.Code
	trailer string
}

func (rpcError) Error() string { return "rpc failed" }

// A callback finds the status, so this package does not import a gRPC library.
func ExampleNewGRPCClassifier() {
	judge, err := compat.NewGRPCClassifier(func(err error) (uint32, string, bool) {
		var s rpcError
		if !errors.As(err, &s) {
			return 0, "", false
		}
		return s.code, s.trailer, true
	}, 14)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range []rpcError{{14, "250"}, {14, "-1"}, {5, ""}} {
		info := judge(s)
		fmt.Println(info.Verdict == retrypolicy.VerdictAgain, info.Kind, info.After)
	}
	// Output:
	// true service unavailable 250ms
	// true service unavailable -1ns
	// false not found 0s
}
