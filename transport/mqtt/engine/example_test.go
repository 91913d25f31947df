package engine_test

import (
	"context"
	"fmt"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// A board provides its own connection, here one in memory, and has buffers of a fixed size.
func Example() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("dev-1"); err != nil {
		panic(err)
	}

	dial := func(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) { // a radio, a modem on a serial line
		return hub.Dial(testbroker.PortMQTT)(ctx, "", "")
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	if err != nil {
		panic(err)
	}
	options := &device.Options{Window: 8, MaxMessages: 16}
	client, err := device.New(creds, engine.New(dial, &engine.Options{ReadBuffer: 1024, WriteBuffer: 1024}), options)
	if err != nil {
		panic(err)
	}
	defer client.Close()

	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		panic(err)
	}
	if err := client.Send(ctx, &transport.Message{Body: []byte("21.5")}); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", hub.Messages()[0].Body)
	// Output: 21.5
}
