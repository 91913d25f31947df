package dpstpm_test

import (
	"context"
	"fmt"
	"log"

	"github.com/google/go-tpm/tpm2/transport/linuxtpm"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpstpm"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

func Example() {
	chip, err := linuxtpm.Open("/dev/tpmrm0")
	if err != nil {
		log.Fatal(err)
	}
	defer chip.Close()
	tpm, err := dpstpm.New(chip, nil)
	if err != nil {
		log.Fatal(err)
	}
	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: tpm.RegistrationID(), TPM: tpm}
	registrar, err := provisioning.New(id, dpshttp.New(nil), nil)
	if err != nil {
		log.Fatal(err)
	}
	assignment, err := registrar.Register(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("device", assignment.DeviceID, "belongs to", assignment.Hub)
	client, err := device.New(registrar.Credentials(assignment), mqtt.New(nil), nil) // the TPM signs there, too
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}
