//go:build !tinygo

package httpretry_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
)

func ExampleTransport() {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Attempt") != "3" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "the third time")
	}))
	defer service.Close()

	client := &http.Client{Transport: &httpretry.Transport{
		Policy:        retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Fixed{Delay: time.Millisecond}},
		AttemptHeader: "Attempt"}}
	response, err := client.Get(service.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(body))
	// Output: 200 the third time
}

// Truncated back-off in one line: three retries for 429 and 5xx, one for 408.
func ExampleTransport_truncated() {
	transport := &httpretry.Transport{Policy: compat.Truncated(), Classify: compat.ClassifyTruncated}
	http.DefaultClient.Transport = transport
}

// The response's Date header keeps a device whose clock is wrong from waiting for days.
func ExampleRetryAfterHeaders() {
	wrongClock := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	answer := http.Header{"Retry-After": {"Fri, 31 Dec 1999 23:59:59 GMT"}, "Date": {"Fri, 31 Dec 1999 23:59:29 GMT"}}
	wait, ok := httpretry.RetryAfterHeaders(answer.Get, wrongClock)
	fmt.Println(wait, ok)
	// Output: 30s true
}
