// Command hello sends a device's first message: it connects to a hub in the same process, sends a
// reading, and reads it from the hub.
//
//	go run ./examples/hello
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func main() {
	ctx := context.Background()
	hub, err := testbroker.New(nil) // a hub in this process, for tests and first steps
	check(err)
	thermometer, err := hub.AddDevice("thermometer")
	check(err)

	creds, err := device.ParseConnectionString(thermometer.ConnectionString())
	check(err)
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
	check(err)
	check(client.Open(ctx)) // retries until connected, or until a retry cannot help
	check(client.Send(ctx, &transport.Message{Body: []byte(`{"celsius":21.5}`)}))
	check(client.Close())

	fmt.Printf("the hub has %s\n", hub.Messages()[0].Body)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
