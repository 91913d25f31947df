//go:build !tinygo

package compat_test

import (
	"fmt"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
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
