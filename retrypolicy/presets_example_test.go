//go:build !tinygo

package retrypolicy_test

import (
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// What the Java SDK does: a fast first retry of a connection, none of a message.
func ExampleAzureJava() {
	connection := retrypolicy.AzureJava{}
	message := retrypolicy.AzureJava{Resend: true}
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

// The limit of time belongs around the curve, or into it where the C SDK has it.
func ExampleAzureC() {
	p := retrypolicy.AzureC{Curve: retrypolicy.CLinear, Limit: 19 * time.Second}
	var a retrypolicy.Attempt
	for a.Retry = 1; ; a.Retry++ {
		d := p.Decide(a)
		fmt.Println(d)
		if !d.Retry {
			break
		}
		a.Last = d
		a.Elapsed += d.Delay
	}
	// Output:
	// retry after 0s
	// retry after 5s
	// retry after 10s
	// stop: out of time
}

// CSharpExponential counts as its SDK does: MaxRetries 3 allows two retries.
func ExampleCSharpExponential() {
	p := retrypolicy.CSharpExponential{MaxRetries: 3, NoJitter: true}
	for n := 1; n <= 3; n++ {
		fmt.Println(p.Decide(retrypolicy.Attempt{Retry: n}))
	}
	// Output:
	// retry after 128ms
	// retry after 256ms
	// stop: out of attempts
}

// Each class of failure has its own count: a 408 has its one retry whatever the 5xx had.
func ExampleTruncated() {
	p := retrypolicy.Truncated()
	var a retrypolicy.Attempt
	for i, status := range []int{503, 408, 429, 408} {
		a.Retry = i + 1
		a.Kind = retrypolicy.HTTPStatus(status).Kind
		a.Last = p.Decide(a)
		fmt.Println(status, a.Last)
	}
	// Output:
	// 503 retry after 1.001s
	// 408 retry after 1s
	// 429 retry after 2.001s
	// 408 stop: out of attempts
}

func ExampleFetchRetry() {
	p := retrypolicy.FetchRetry{
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

// A wait above the limit ends the retries.
func ExampleAzcore() {
	var p retrypolicy.Azcore
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 1, After: 45 * time.Second}))
	fmt.Println(p.Decide(retrypolicy.Attempt{Retry: 1, After: 5 * time.Minute}))
	// Output:
	// retry after 45s
	// stop: the service asked not to retry
}

func ExampleHTTPStatus() {
	for _, status := range []int{200, 403, 429, 503} {
		info := retrypolicy.HTTPStatus(status)
		fmt.Println(status, info.Verdict == retrypolicy.Again, info.Kind)
	}
	// Output:
	// 200 false unknown error
	// 403 false forbidden
	// 429 true throttled
	// 503 true service unavailable
}

// The response's own Date keeps a device whose clock is wrong from waiting for days.
func ExampleParseRetryAfterAt() {
	wrongClock := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	wait, ok := retrypolicy.ParseRetryAfterAt("Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 31 Dec 1999 23:59:29 GMT", wrongClock)
	fmt.Println(wait, ok)
	// Output: 30s true
}
