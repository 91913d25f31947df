package testbroker_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func ExampleHub_Dial_http() {
	hub, dev := hubWith("dev-1", nil)
	defer hub.Close()
	client := &http.Client{Transport: &http.Transport{DialContext: hub.Dial(testbroker.PortHTTP)}}
	defer client.CloseIdleConnections()

	hub.Inject(fault.Fault{Kind: fault.AnswerStatus, Statuses: []int{503, 429}, RetryAfter: 30 * time.Second})
	for range 3 {
		url := "http://" + hub.HostName() + "/devices/dev-1/messages/events?api-version=2021-04-12"
		r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(`{"celsius":71}`))
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("Authorization", hubtest.Token(dev))
		answer, err := client.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Println(answer.StatusCode, answer.Header.Get("iothub-errorcode"), answer.Header.Get("Retry-After"), hub.Len())
	}
	// Output:
	// 503 ServiceUnavailable 30 0
	// 429 ThrottlingException 30 0
	// 204   1
}
