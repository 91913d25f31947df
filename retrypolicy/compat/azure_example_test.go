//go:build !tinygo

package compat_test

import (
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
)

// The Java SDK has a fast first retry for a connection, and none for a message.
func ExampleAzureJava() {
	connection := compat.AzureJava{}
	message := compat.AzureJava{Resend: true}
	for n := 1; n <= 4; n++ {
		a := retrypolicy.Attempt{Retry: n}
		fmt.Println(n, connection.Decide(a).Delay, message.Decide(a).Delay)
	}
	// Output:
	// 1 0s 180ms
	// 2 180ms 340ms
	// 3 340ms 660ms
	// 4 660ms 1.3s
}

// The time limit belongs around the curve, or into it for the C SDK.
func ExampleAzureC() {
	p := compat.AzureC{Curve: compat.AzureCLinear, Limit: 19 * time.Second}
	series := p.Begin(retrypolicy.Start{})
	var a retrypolicy.Attempt
	for a.Retry = 1; ; a.Retry++ {
		d := series.Decide(a)
		fmt.Println(d)
		if !d.Retry {
			break
		}
		a.Elapsed += d.Delay
	}
	// Output:
	// retry after 0s
	// retry after 5s
	// retry after 10s
	// stop: out of time
}

// CSharpExponential counts as its SDK does: MaxRetries 3 allows two retries.
func ExampleAzureCSharpExponential() {
	p := compat.AzureCSharp{MaxRetries: 3, NoJitter: true}
	for n := 1; n <= 3; n++ {
		fmt.Println(p.Decide(retrypolicy.Attempt{Retry: n}))
	}
	// Output:
	// retry after 128ms
	// retry after 256ms
	// stop: out of attempts
}

// A wait above the limit ends the retries.
func ExampleAzcore() {
	var p compat.Azcore
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 1, After: 45 * time.Second}))
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 1, After: 5 * time.Minute}))
	// Output:
	// retry after 45s
	// stop: the service asked not to retry
}
