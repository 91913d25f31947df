package observe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func ExampleHealth() {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("dev-1"); err != nil {
		log.Fatal(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	h := &observe.Health{}
	h.Add("dev-1", client)
	server := httptest.NewServer(h) // in a program: http.ListenAndServe("127.0.0.1:8080", h)
	defer server.Close()
	code := func() int {
		answer, err := http.Get(server.URL + "/healthz")
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}

	fmt.Println("before Open:", code())
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("after Open:", code())

	if err := client.Send(ctx, &transport.Message{Body: []byte(`{"temperature":21.5}`)}); err != nil {
		log.Fatal(err)
	}
	answer, err := http.Get(server.URL + "/stats")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	var all struct {
		Clients map[string]struct {
			Stats struct{ Acknowledged int }
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&all); err != nil {
		log.Fatal(err)
	}
	fmt.Println("acknowledged:", all.Clients["dev-1"].Stats.Acknowledged)
	// Output:
	// before Open: 503
	// after Open: 200
	// acknowledged: 1
}
