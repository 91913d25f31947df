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

// A device asks for an update before it registers. In a program, the agent asks.
func Example() {
	dps, registrar := serviceWithUpdate()
	defer dps.Close()
	service, err := dpsupdate.New(registrar, nil)
	if err != nil {
		log.Fatal(err)
	}
	registrar.Before(func(ctx context.Context) error {
		answer, err := service.Check(ctx, &agent.Query{
			Onboarding: true, Profile: 1, Properties: agent.Properties{{Name: "manufacturer", Value: "Contoso"}},
		})
		if err != nil {
			return err // it registers all the same
		}
		manifest, err := agent.ParseManifest(answer.Offer.Manifest)
		if err != nil {
			return err
		}
		fmt.Println("offered:", manifest.ID)
		return nil
	})
	assignment, err := registrar.Register(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("assigned:", assignment.Hub)
	// Output:
	// offered: Contoso/Tractor 2.0
	// assigned: hub.example.test
}

// serviceWithUpdate returns a provisioning service that offers an update, and a device's client for
// it.
func serviceWithUpdate() (*testbroker.DPS, *provisioning.Client) {
	dps, err := testbroker.NewDPS(nil)
	check(err)
	hub, err := testbroker.New(nil)
	check(err)
	check(dps.Link(hub))
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
