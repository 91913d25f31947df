package setup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// What updates are for, and the handler that their step names.
const (
	UpdateProvider = "Contoso"
	UpdateModel    = "roof-sensor"
	UpdateHandler  = "contoso/image:1"
)

const deviceID = "roof-7"

// UpdateCloud is what the examples about updates connect to, in their own process: a provisioning
// service with an update service behind it, and a hub, with one device. It is their back end, too.
type UpdateCloud struct {
	Hub     *testbroker.Hub
	DPS     *testbroker.DPS
	Updates *testbroker.Updates
	device  *provisioning.Identity
}

// newUpdateCloud starts the services and enrols the device.
func newUpdateCloud() (*UpdateCloud, error) {
	hub, hubErr := testbroker.New(nil)
	dps, dpsErr := testbroker.NewDPS(&testbroker.DPSOptions{Polls: -1}) // assigns devices at once
	updates, updatesErr := testbroker.NewUpdates(nil)
	if err := errors.Join(hubErr, dpsErr, updatesErr); err != nil {
		return nil, err
	}
	dps.LinkUpdates(updates)
	enrolled, err := dps.Enroll(dpsdata.Enrollment{ID: deviceID})
	if err = errors.Join(err, dps.Link(hub)); err != nil {
		return nil, err
	}
	sign, err := transport.SharedKey(enrolled.PrimaryKey)
	return &UpdateCloud{Hub: hub, DPS: dps, Updates: updates, device: &provisioning.Identity{
		Endpoint: dps.HostName(), IDScope: dps.IDScope(), RegistrationID: deviceID, Sign: sign}}, err
}

// RunUpdates starts the services, and runs a device until the back end has seen what it waits for.
// An error of one ends the other.
func RunUpdates(device, backEnd func(ctx context.Context, c *UpdateCloud) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := newUpdateCloud()
	if err != nil {
		return err
	}
	defer c.Close()
	powered, off := context.WithCancel(ctx)
	defer off()
	ended, done := make(chan error, 1), make(chan error, 1)
	go func() { ended <- device(powered, c) }() // ends with powered, or with an error
	go func() { done <- backEnd(ctx, c) }()     // ends with ctx
	select {
	case err = <-done:
		off()
		return errors.Join(err, <-ended)
	case err = <-ended:
		cancel()
		<-done
		return err
	}
}

// Close ends the services.
func (c *UpdateCloud) Close() {
	c.DPS.Close()
	c.Hub.Close()
}

// Network has the settings for connections to the provisioning service, and to the files of
// updates.
func (c *UpdateCloud) Network() *netopt.Options {
	return &netopt.Options{Dial: c.DPS.Dial(testbroker.PortHTTPS), TLS: c.DPS.ClientTLS()}
}

// Registrar returns a client of the provisioning service for the device.
func (c *UpdateCloud) Registrar() (*provisioning.Client, error) {
	return provisioning.New(c.device, dpshttp.New(c.Network()), nil)
}

// Install publishes an update with one file for the device and waits for the final report. It
// returns an error unless the outcome is want, there is one such report, and the device says that
// it has the version have.
func (c *UpdateCloud) Install(ctx context.Context, number int, file []byte, want updatedata.Outcome, have int) error {
	d, err := c.publish(number, file)
	if err != nil {
		return err
	}
	fmt.Printf("back end publishes version %d\n", number)
	state := func() (w updatedata.Workflow, final []updatedata.Report) {
		device := c.Updates.Device(deviceID)
		w = device.Workflow(d.WorkflowID)
		for _, r := range w.Reports {
			if r.Result.Outcome.Terminal() {
				final = append(final, r)
			}
		}
		return w, final
	}
	err = c.Updates.Wait(ctx, func() bool {
		_, final := state()
		return len(final) > 0
	})
	w, final := state()
	if err != nil {
		return fmt.Errorf("version %d: no final report among %v: %w", number, w.Reports, err)
	}
	last := final[len(final)-1]
	fmt.Printf("back end is told: %v; version %s is installed\n", last.Result, last.Installed.Version)
	if last.Result.Outcome != want || len(final) != 1 || last.Installed.Version != version(have) {
		return fmt.Errorf("version %d: %d final reports, the last one: %v; want %s once, and version %s", number, len(final),
			last, want, version(have))
	}
	return nil
}

// publish imports an update and deploys it.
func (c *UpdateCloud) publish(number int, file []byte) (updatedata.Deployment, error) {
	id := updatedata.UpdateID{Provider: UpdateProvider, Name: UpdateModel, Version: version(number)}
	properties, err := json.Marshal(map[string]string{"installedCriteria": strconv.Itoa(number)})
	if err != nil {
		return updatedata.Deployment{}, err
	}
	err = c.Updates.Publish(updatedata.Update{
		ID: id, Compatibility: []map[string]string{{"manufacturer": UpdateProvider, "model": UpdateModel}},
		Steps: []updatedata.Step{{Handler: UpdateHandler, Files: []string{"image"}, Properties: properties}},
		Files: []updatedata.File{{Name: "image", Content: file}},
	})
	if err != nil {
		return updatedata.Deployment{}, err
	}
	return c.Updates.Deploy(updatedata.Deployment{Update: id, Devices: []string{deviceID}})
}

func version(number int) string { return strconv.Itoa(number) + ".0" }
