package workload_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
)

// A module asks for a signature.
func ExampleServer() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("edge-1"); err != nil {
		panic(err)
	}
	module, err := hub.AddModule("edge-1", "filter")
	if err != nil {
		panic(err)
	}
	daemon, err := workload.New(hub, nil)
	if err != nil {
		panic(err)
	}
	defer daemon.Close()

	daemon.Inject(workload.Fault{Kind: workload.FaultAnswerStatus, Status: 503})
	client := &http.Client{Transport: &http.Transport{DialContext: daemon.Dial, DisableKeepAlives: true}}
	for range 2 {
		answer, err := client.Post("http://workload/modules/filter/genid/"+module.GenerationID+
			"/sign?api-version=2018-06-28", "application/json", strings.NewReader(`{"data":"aGVsbG8="}`))
		if err != nil {
			panic(err)
		}
		var body struct{ Digest []byte }
		err = json.NewDecoder(answer.Body).Decode(&body)
		answer.Body.Close()
		fmt.Println(answer.StatusCode, len(body.Digest), err)
	}
	fmt.Println(daemon.Count(workload.CallSign), "calls")
	// Output:
	// 503 0 <nil>
	// 200 32 <nil>
	// 2 calls
}
