package twin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/twin"
)

// A device takes its interval from the twin, refuses an invalid one, and reports what is in force.
func ExampleBind() {
	hub, client := exampleClient()
	defer hub.Close()
	defer client.Close()

	type settings struct {
		Interval int `json:"interval"` // seconds
	}
	binding, err := twin.Bind(client, &twin.Options[settings]{
		Default: settings{Interval: 60},
		Check: func(s settings) error {
			if s.Interval < 1 {
				return &twin.FieldError{Field: "interval", Err: errors.New("give 1 or more seconds")}
			}
			return nil
		},
		Apply: func(_ context.Context, c twin.Change[settings]) error {
			fmt.Println("device: interval", c.New.Interval)
			return nil
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer binding.Close()
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	for _, seconds := range []string{"30", "-5", "null"} {
		version, err := hub.PatchDesired("dev-1", `{"interval":`+seconds+`}`)
		if err != nil {
			log.Fatal(err)
		}
		answer := fmt.Appendf(nil, `"av":%d,`, version)
		err = hub.WaitReported(ctx, "dev-1", func(t hubdata.Twin) bool { return bytes.Contains(t.Reported, answer) })
		if err != nil {
			log.Fatal(err)
		}
		doc, _ := hub.Twin("dev-1")
		fmt.Printf("%s\n", doc.Reported)
	}
	fmt.Println("in force:", binding.Value().Interval)
	// Output:
	// device: interval 30
	// {"interval":{"ac":200,"ad":"","av":2,"value":30}}
	// {"interval":{"ac":400,"ad":"field interval: give 1 or more seconds","av":3,"value":30}}
	// device: interval 60
	// {"interval":{"ac":203,"ad":"by default","av":4,"value":60}}
	// in force: 60
}

// A device reports its state, and only what changed is sent.
func ExampleReporter() {
	hub, client := exampleClient()
	defer hub.Close()
	defer client.Close()
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}

	type state struct {
		Firmware string `json:"firmware"`
		Battery  int    `json:"battery,omitempty"`
	}
	reporter, err := twin.NewReporter[state](client)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range []state{{"1.0", 80}, {"1.0", 79}, {"1.0", 79}, {"1.1", 0}} {
		if err := reporter.Report(ctx, s); err != nil {
			log.Fatal(err)
		}
	}
	for _, request := range hub.TwinLog("dev-1") {
		if request.Operation == hubdata.TwinPatch {
			fmt.Printf("%s\n", request.Body)
		}
	}
	// Output:
	// {"battery":80,"firmware":"1.0"}
	// {"battery":79}
	// {"battery":null,"firmware":"1.1"}
}

// exampleModel is what the device announces as its Plug and Play model.
const exampleModel = "dtmi:com:example:TemperatureController;1"

// exampleClient returns a client and its in-process hub, connected in memory.
func exampleClient() (*testbroker.Hub, *device.Client) {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := hub.AddDevice("dev-1"); err != nil {
		log.Fatal(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	if err != nil {
		log.Fatal(err)
	}
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network, ModelID: exampleModel}), nil)
	if err != nil {
		log.Fatal(err)
	}
	return hub, client
}
