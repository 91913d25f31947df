package amqp_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
)

// A device over AMQP, with its own connection.
func ExampleNew() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("thermometer"); err != nil {
		panic(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("thermometer"))
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	client, err := device.New(creds, amqp.New(&amqp.Options{Network: netopt.Options{Dial: hub.Dial(testbroker.PortAMQPS),
		TLS: hub.ClientTLS()}}),
		nil)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if err := client.Open(ctx); err != nil {
		panic(err)
	}
	if err := client.Send(ctx, &transport.Message{ID: "m-1", Body: []byte("21.5")}); err != nil {
		panic(err)
	}
	fmt.Printf("the hub has %s: %s\n", hub.Messages()[0].MessageID, hub.Messages()[0].Body)
	// Output: the hub has m-1: 21.5
}

// A gateway: its devices share one connection, and join and leave at any time.
func ExampleNewMux() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()

	ctx := context.Background()
	mux := amqp.NewMux(&amqp.Options{Network: netopt.Options{Dial: hub.Dial(testbroker.PortAMQPS), TLS: hub.ClientTLS()}})
	for i := range 3 {
		id := fmt.Sprintf("sensor-%d", i)
		if _, err := hub.AddDevice(id); err != nil {
			panic(err)
		}
		creds, err := device.ParseConnectionString(hub.ConnectionString(id))
		if err != nil {
			panic(err)
		}
		client, err := device.New(creds, mux, nil) // with its own retry policy, status and credentials
		if err != nil {
			panic(err)
		}
		defer client.Close() // leaves; the last one closes the connection
		if err := client.Open(ctx); err != nil {
			panic(err)
		}
		if err := client.Send(ctx, &transport.Message{Body: []byte(id)}); err != nil {
			panic(err)
		}
	}
	for _, m := range hub.Messages() {
		fmt.Printf("%s on connection %d\n", m.DeviceID, m.Connection)
	}
	// Output:
	// sensor-0 on connection 1
	// sensor-1 on connection 1
	// sensor-2 on connection 1
}

// Another AMQP 1.0 broker: other addresses, a user and a password.
func ExampleAddresses() {
	creds := &transport.Credentials{Host: "broker.local", DeviceID: "pump-1", UserName: "pump",
		Token: transport.FixedToken("secret")}
	t := amqp.New(&amqp.Options{Addresses: &amqp.Addresses{Telemetry: "telemetry", Commands: "commands.{device}"}})
	client, err := device.New(creds, t, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(client.Status().State)
	// Output: disconnected
}

// Through the proxy of a company network.
func ExampleNew_proxy() {
	dial, err := netproxy.New("http://user:password@proxy.example.com:3128", nil)
	if err != nil {
		panic(err)
	}
	t := amqp.New(&amqp.Options{Network: netopt.Options{Dial: dial}})
	fmt.Printf("%T\n", t)
	// Output: *amqp.Transport
}

func ExampleConditionError() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("thermometer"); err != nil {
		panic(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("thermometer"))
	if err != nil {
		panic(err)
	}
	hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Condition: "amqp:connection:forced",
		Description: "moving"})

	_, err = amqp.New(&amqp.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortAMQP)}}).Dial(
		context.Background(),
		&transport.Config{Creds: creds})
	if said, ok := errors.AsType[*amqp.ConditionError](err); ok {
		fmt.Println(said.What, said.Condition, "unavailable:", errors.Is(err, transport.Unavailable))
	}
	// Output: connection amqp:connection:forced unavailable: true
}
