package edge_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/workload"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// The module "control" starts the module "pump". The test hub has the gateway's part.
func ExampleInvoker_Invoke() {
	hub, err := testbroker.New(&testbroker.Options{
		Gateway: &testbroker.GatewayOptions{Name: "gateway.local", DeviceID: "edge-1"}})
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	_, err = hub.AddDevice("edge-1")
	for _, name := range []string{"control", "pump"} {
		if err == nil {
			_, err = hub.AddModule("edge-1", name)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
	daemon, err := workload.New(hub, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer daemon.Close()
	module := func(name string, port testbroker.Port) *edge.Module {
		m, err := edge.FromEnvironment(&edge.Options{ // a program of the runtime gives nil
			LookupEnv: workload.LookupEnv(daemon.Environment("edge-1", name)), Dial: daemon.Dial,
		})
		if err != nil {
			log.Fatal(err)
		}
		m.Network.Dial = hub.Dial(port) // and leaves this out
		return m
	}

	pump := module("pump", testbroker.PortMQTTS)
	client, err := device.New(pump.Credentials, mqtt.New(&mqtt.Options{Network: pump.Network}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.HandleMethod("start", func(_ context.Context, m *device.MethodCall) (int, []byte) {
		fmt.Printf("pump: start %s\n", m.Body)
		return 200, []byte(`{"rpm":1500}`)
	}); err != nil {
		log.Fatal(err)
	}
	if err := client.Open(context.Background()); err != nil {
		log.Fatal(err)
	}

	control := module("control", testbroker.PortHTTPS)
	invoker, err := edge.NewInvoker(control.Credentials, &edge.InvokerOptions{Network: control.Network})
	if err != nil {
		log.Fatal(err)
	}
	defer invoker.Close()
	result, err := invoker.Invoke(context.Background(), edge.Target{ModuleID: "pump"},
		edge.Method{Name: "start", Payload: []byte(`{"speed":3}`)})
	switch {
	case errors.Is(err, transport.ErrOutcomeUnknown):
		log.Fatal("it may run: ", err)
	case err != nil:
		log.Fatal("it does not run: ", err)
	}
	fmt.Printf("control: %d %s\n", result.Status, result.Payload)
	// Output:
	// pump: start {"speed":3}
	// control: 200 {"rpm":1500}
}
