//go:build !tinygo

package httpretry_test

import (
	"fmt"
	"github.com/hubline-iot/hubline/retrypolicy"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
)

func ExampleStatus() {
	for _, status := range []int{200, 403, 429, 503} {
		info := httpretry.Status(status)
		fmt.Println(status, info.Verdict == retrypolicy.VerdictAgain, info.Kind)
	}
	// Output:
	// 200 false unknown error
	// 403 false forbidden
	// 429 true throttled
	// 503 true service unavailable
}

// The response's Date header keeps a device whose clock is wrong from waiting for days.
func ExampleParseRetryAfterAt() {
	wrongClock := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	wait, ok := httpretry.ParseRetryAfterAt("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:29 GMT", wrongClock)
	fmt.Println(wait, ok)
	// Output: 30s true
}
