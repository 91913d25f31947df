package mqtt_test

import (
	"context"
	"fmt"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// Any broker, named by one URL. Here it is one in the same process.
func ExampleParseBroker() {
	broker, err := testbroker.New(&testbroker.Options{Broker: &testbroker.BrokerOptions{
		Telemetry: "site/{device}/up", Password: "secret"}})
	if err != nil {
		panic(err)
	}
	defer broker.Close()
	if _, err := broker.AddDevice("pump-1"); err != nil {
		panic(err)
	}

	creds, opts, err := mqtt.ParseBroker("mqtts://pump-1:secret@hub.example.test/?telemetry=site/{device}/up")
	if err != nil {
		panic(err)
	}
	opts.Network.Dial, opts.Network.TLS = broker.Dial(testbroker.PortMQTTS), broker.ClientTLS()
	client, err := device.New(creds, mqtt.New(opts), nil)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		panic(err)
	}
	if err := client.Send(ctx, &transport.Message{Body: []byte("5.25")}); err != nil {
		panic(err)
	}
	fmt.Printf("%s: %s\n", broker.Messages()[0].Topic, broker.Messages()[0].Body)
	_, _, err = mqtt.ParseBroker("mqtts://pump-1:secret@hub.example.test/?topic=site/{device}/up")
	fmt.Println(err)
	// Output:
	// site/pump-1/up: 5.25
	// open: invalid: broker URL: parameter 1 is not known; write telemetry for messages to send, commands for messages to receive
}
