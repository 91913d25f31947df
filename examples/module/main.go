// Command module is an IoT Edge module. It takes readings from its input "readings" and passes
// those above a threshold on to its output "hot". The desired property "threshold" sets the
// threshold, and the method "count" tells how many readings came and were passed on.
//
// The runtime's environment says who the module is. Without it the program starts an edge device of
// its own, with a gateway, a daemon, a second module that sends readings, and a back end. The
// gateway also restarts with a certificate of another authority. The exit status is 0 only if the
// hub got the right readings, each once.
//
//	go run ./examples/module                     over MQTT
//	go run ./examples/module -transport amqp     the same over AMQP 1.0
//	IOTEDGE_...=... go run ./examples/module     a module of a real edge device, until Ctrl-C; -hub $HUB: of a testhub
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/edge"
	"github.com/hubline-iot/hubline/examples/internal/setup"
)

func main() {
	hub := flag.String("hub", "", "`address` of a testhub's control API, if the environment is from there")
	transport := flag.String("transport", "mqtt",
		"what carries the messages: mqtt, amqp or amqp-ws")
	setup.Main(0, new(setup.Target), func(ctx context.Context) error {
		return run(ctx, *transport, setup.Target{Testhub: *hub})
	})
}

func run(ctx context.Context, name string, to setup.Target) error {
	ports, err := setup.PortsOf(name)
	switch {
	case err != nil:
		return err
	case !isModule() && to.Testhub != "":
		return setup.Usage("flag -hub: it tells the port only; set the environment that testhub prints for -module")
	case !isModule():
		return runAlone(ctx, name, ports)
	}
	m, err := edge.FromEnvironment(nil)
	if err != nil {
		return err
	}
	at, err := to.Find(ctx, ports.Testhub)
	if err != nil {
		return err
	}
	m.Network.Addr = at.Addr // the trust bundle verifies the gateway at any port
	client, err := startFilter(ctx, name, m)
	if err != nil {
		return err
	}
	fmt.Println("filter   waits for readings; Ctrl-C ends")
	<-ctx.Done()
	return client.Close()
}

// isModule reports whether the environment is meant to be a module's.
func isModule() bool {
	for _, name := range []string{"IOTEDGE_WORKLOADURI", "EdgeHubConnectionString", "IotHubConnectionString"} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// startFilter connects the module. It returns once the module is connected.
func startFilter(ctx context.Context, name string, m *edge.Module) (*device.Client, error) {
	client, err := device.New(m.Credentials, setup.Transport(name, m.Credentials, m.Network),
		&device.Options{OnStatus: func(s device.Status) { fmt.Println("filter  ", s.State, s.Reason) }})
	if err != nil {
		return nil, err
	}
	f := &filter{client: client, threshold: 25}
	if err := client.HandleInput("readings", f.take); err != nil {
		return nil, err
	}
	if err := client.HandleDesired(f.follow); err != nil {
		return nil, err
	}
	if err := client.HandleMethod("count", f.count); err != nil {
		return nil, err
	}
	return client, client.Open(ctx)
}
