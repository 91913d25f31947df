//go:build !tinygo

package compat_test

import (
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/transport"
)

// Each class of failure has its own count: a 408 has its one retry after any number of 5xx.
func ExampleTruncated() {
	p := compat.Truncated()
	series := p.Begin(retrypolicy.Start{})
	defer series.End()
	var a retrypolicy.Attempt
	for i, status := range []int{503, 408, 429, 408} {
		a.Retry = i + 1
		a.Kind = httpretry.Status(status).Kind
		fmt.Println(status, series.Decide(a))
	}
	// Output:
	// 503 retry after 1.001s
	// 408 retry after 1s
	// 429 retry after 2.001s
	// 408 stop: out of attempts
}

func ExampleFetchRetry() {
	p := compat.FetchRetry{
		Retries:   2,
		DelayFunc: func(attempt int, err error) time.Duration { return time.Second << attempt },
	}
	for n := 1; n <= 3; n++ {
		fmt.Println(p.Decide(retrypolicy.Attempt{Retry: n, Err: transport.Network}))
	}
	// Output:
	// retry after 1s
	// retry after 2s
	// stop: out of attempts
}
