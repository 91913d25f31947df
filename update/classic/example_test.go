package classic_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/classic"
)

// The agent calls Check and Report; here a program does. The page docs/device-update.md has the
// whole way with an agent.
func Example() {
	hub, err := testbroker.New(nil)
	check(err)
	defer hub.Close()
	dev, err := hub.AddDevice("tractor-1")
	check(err)
	creds, err := device.ParseConnectionString(dev.ConnectionString())
	check(err)
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network, ModelID: classic.ModelID}), nil)
	check(err)
	defer client.Close()
	service, err := classic.New(client)
	check(err)
	ctx := context.Background()
	check(client.Open(ctx))

	_, err = hub.PatchDesired("tractor-1", `{"deviceUpdate":{"__t":"c","service":{"workflow":{"action":3,"id":"wf-1"},`+
		`"updateManifest":"{}","updateManifestSignature":"a.b.c"}}}`)
	check(err)
	answer, err := service.Check(ctx, &agent.Query{Properties: agent.Properties{{Name: "model", Value: "Tractor"}}})
	check(err)
	fmt.Println("offered:", answer.Offer.WorkflowID)
	check(service.Report(ctx, &agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeFailed}}))
	twin, err := hub.Twin("tractor-1")
	check(err)
	fmt.Println(string(twin.Reported))
	// Output:
	// offered: wf-1
	// {"deviceUpdate":{"__t":"c","agent":{"compatPropertyNames":"model","deviceProperties":{"contractModelId":"dtmi:azure:iot:deviceUpdateContractModel;3","model":"Tractor"},"lastInstallResult":{"extendedResultCodes":"00000000","resultCode":0,"resultDetails":""},"state":255,"workflow":{"action":3,"id":"wf-1"}},"service":{"ac":200,"ad":"","av":2,"value":{"workflow":{"action":3,"id":"wf-1"}}}}}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
