package twin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
)

// A thermostat accepts temperatures in its range, and explains why it rejects others.
func ExampleProperties() {
	hub, client := exampleClient()
	defer hub.Close()
	defer client.Close()
	ctx := context.Background()

	target := 20.0
	client.HandleDesired(func(ctx context.Context, d device.Desired) {
		wishes, err := twin.Properties(d, "thermostat1")
		if err != nil {
			log.Print(err) // a back end that ignores the model
		}
		var patch twin.Patch
		for _, wish := range wishes {
			if wish.Component != "thermostat1" || wish.Name != "targetTemperature" {
				continue
			}
			answer := twin.Answer{Status: twin.StatusOK}
			var wanted float64
			switch err := wish.Decode(&wanted); {
			case wish.Removed():
				target = 20
				answer = twin.Answer{Status: twin.StatusInitial, Value: target, Description: "the default"}
			case err != nil || wanted < 5 || wanted > 30:
				answer = twin.Answer{Status: twin.StatusBadValue, Value: target, Description: "5 to 30 degrees"}
			default:
				target = wanted
			}
			patch.Answer(wish, answer)
		}
		if patch.Empty() {
			return
		}
		body, err := patch.JSON()
		if err != nil {
			log.Fatal(err)
		}
		if _, err := client.PatchReported(ctx, body); err != nil {
			log.Print(err)
		}
	})
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	for version, degrees := range []string{"21.5", "400", "null"} {
		if _, err := hub.PatchDesired("dev-1", `{"thermostat1":{"__t":"c","targetTemperature":`+degrees+`}}`); err != nil {
			log.Fatal(err)
		}
		err := hub.WaitReported(ctx, "dev-1", func(t hubdata.Twin) bool { return t.ReportedVersion == int64(version+2) })
		if err != nil {
			log.Fatal(err)
		}
		doc, _ := hub.Twin("dev-1")
		fmt.Printf("%s\n", doc.Reported)
	}
	// Output:
	// {"thermostat1":{"__t":"c","targetTemperature":{"ac":200,"ad":"","av":2,"value":21.5}}}
	// {"thermostat1":{"__t":"c","targetTemperature":{"ac":400,"ad":"5 to 30 degrees","av":3,"value":21.5}}}
	// {"thermostat1":{"__t":"c","targetTemperature":{"ac":203,"ad":"the default","av":4,"value":20}}}
}

// Read-only properties, and the default of a writable property without a desired value.
func ExamplePatch() {
	var patch twin.Patch
	patch.Report("", "serialNumber", "s-1")
	patch.Report("thermostat1", "maxTempSinceLastReboot", 24.5)
	patch.Initial("thermostat1", "targetTemperature", 20, "initialize")
	body, err := patch.JSON()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", body)
	// Output: {"serialNumber":"s-1","thermostat1":{"__t":"c","maxTempSinceLastReboot":24.5,"targetTemperature":{"value":20,"ac":203,"av":0,"ad":"initialize"}}}
}

// The command of a component is a direct method named after both.
func ExampleCommand() {
	hub, client := exampleClient()
	defer hub.Close()
	defer client.Close()
	ctx := context.Background()

	err := client.HandleMethod(twin.Command("thermostat1", "getMaxMinReport"),
		func(context.Context, *device.MethodCall) (int, []byte) {
			return 200, []byte(`{"maxTemp":24.5,"minTemp":19}`)
		})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	result, err := hub.CallMethod(ctx, "dev-1", hubdata.MethodCall{Name: "thermostat1*getMaxMinReport"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d %s\n", result.Status, result.Payload)
	// Output: 200 {"maxTemp":24.5,"minTemp":19}
}

// A telemetry message names its component.
func ExampleSetComponent() {
	hub, client := exampleClient()
	defer hub.Close()
	defer client.Close()
	ctx := context.Background()

	m := &transport.Message{ContentType: "application/json", ContentEncoding: "utf-8",
		Body: []byte(`{"temperature":21.5}`)}
	if err := twin.SetComponent(m, "thermostat1"); err != nil {
		log.Fatal(err)
	}
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	if err := client.Send(ctx, m); err != nil {
		log.Fatal(err)
	}
	for _, m := range hub.Messages() {
		fmt.Printf("%s: %s\n", m.Component, m.Body)
	}
	// Output: thermostat1: {"temperature":21.5}
}
