package edge_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// A module sends a message. The test hub has the gateway's part, and signs its tokens.
func ExampleFromEnvironment() {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	if _, err = hub.AddDevice("edge-1"); err == nil {
		_, err = hub.AddModule("edge-1", "filter")
	}
	if err != nil {
		log.Fatal(err)
	}
	daemon, err := workload.New(hub, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer daemon.Close()

	// a program of the runtime gives nil
	m, err := edge.FromEnvironment(&edge.Options{
		LookupEnv: workload.LookupEnv(daemon.Environment("edge-1", "filter")), Dial: daemon.Dial,
	})
	if err != nil {
		log.Fatal(err)
	}
	m.Network.Dial = hub.Dial(testbroker.PortMQTTS) // and leaves this out
	client, err := device.New(m.Credentials, mqtt.New(&mqtt.Options{Network: m.Network}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.Open(context.Background()); err != nil {
		log.Fatal(err)
	}
	if err := client.Send(context.Background(), &transport.Message{Body: []byte("21.5")}); err != nil {
		log.Fatal(err)
	}
	sent := hub.Messages()[0]
	fmt.Printf("%s/%s: %s\n", sent.DeviceID, sent.ModuleID, sent.Body)
	// Output: edge-1/filter: 21.5
}
