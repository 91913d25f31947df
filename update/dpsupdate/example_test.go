package dpsupdate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

// A device asks for an update and reports that it has it. In a program, the agent does both.
func Example() {
	dps, registrar := serviceWithUpdate()
	defer dps.Close()
	defer registrar.CloseIdle()
	service, err := dpsupdate.New(registrar, nil)
	check(err)
	ctx := context.Background()
	answer, err := service.Check(ctx, &agent.Query{
		Onboarding: true, Profile: 1, Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}},
	})
	check(err)
	manifest, err := agent.ParseManifest(answer.Offer.Manifest)
	check(err)
	fmt.Println("offered:", manifest.ID)
	done := agent.Result{Outcome: agent.OutcomeSucceeded, Code: agent.CodeSuccess}
	err = service.Report(ctx, &agent.Report{
		WorkflowID: answer.Offer.WorkflowID, Installed: manifest.ID, Result: done, Steps: []agent.Result{done},
	})
	check(err)
	answer, err = service.Check(ctx, &agent.Query{
		Installed: manifest.ID, Profile: 1, Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}},
	})
	check(err)
	fmt.Println("offered again:", answer.Offer != nil)
	// Output:
	// offered: Contoso/Tractor 2.0
	// offered again: false
}

// serviceWithUpdate returns a provisioning service that offers an update, and a device's client for
// it.
func serviceWithUpdate() (*testbroker.DPS, *provisioning.Client) {
	dps, err := testbroker.NewDPS(nil)
	check(err)
	updates, err := testbroker.NewUpdates(nil)
	check(err)
	dps.LinkUpdates(updates)
	id := updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "2.0"}
	check(updates.Publish(updatedata.Update{
		ID: id, Compatibility: []map[string]string{{"manufacturer": "Contoso"}},
		Steps: []updatedata.Step{{Handler: "contoso/firmware:1", Files: []string{"firmware.bin"}}},
		Files: []updatedata.File{{Name: "firmware.bin", Content: []byte("new")}},
	}))
	_, err = updates.Deploy(updatedata.Deployment{Update: id})
	check(err)
	enrollment, err := dps.Enroll(dpsdata.Enrollment{ID: "tractor-1"})
	check(err)
	sign, err := transport.SharedKey(enrollment.PrimaryKey)
	check(err)
	registrar, err := provisioning.New(&provisioning.Identity{
		Endpoint: dps.HostName(), IDScope: dps.IDScope(), RegistrationID: "tractor-1", Sign: sign,
	}, dpsmqtt.New(&netopt.Options{Dial: dps.Dial(testbroker.PortMQTTS), TLS: dps.ClientTLS()}), nil)
	check(err)
	return dps, registrar
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
