package leannet_test

import (
	"context"
	"fmt"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// TLS on standard Go. For a real hub the options are not needed.
func Example() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	addr, err := hub.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if _, err := hub.AddDevice("dev-1"); err != nil {
		panic(err)
	}

	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	if err != nil {
		panic(err)
	}
	dial := leannet.Dialer(creds, &netopt.Options{Addr: addr.String(), TLS: hub.ClientTLS()})
	client, err := device.New(creds, lean.New(dial, nil), nil)
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
