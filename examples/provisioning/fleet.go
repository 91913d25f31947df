package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

const (
	fleetSize = 100
	refusals  = 60
)

// registerTheFleet registers all devices of a group at once. Each sends a greeting to its hub. It
// returns the ids of the messages.
func (c *cloud) registerTheFleet(ctx context.Context) (sent []string, err error) {
	group, err := c.service.Enroll(dpsdata.Enrollment{ID: "fleet", Group: true})
	if err != nil {
		return nil, err
	}
	c.service.Inject(fault.Fault{Kind: fault.RefuseProvisioning, Route: fault.RouteRegister, Times: refusals,
		RetryAfter: 5 * time.Second}) // answers with the status 429
	var told atomic.Int64
	options := &provisioning.Options{
		// So that the example ends soon. The default spreads the refused devices over minutes.
		Policy: retrypolicy.Fixed{Delay: time.Second, Jitter: 0.5},
		OnEvent: func(e provisioning.Event) {
			if e.Step == provisioning.StepRetrying && told.Add(1) <= 3 {
				c.say("a device", e)
			}
		},
	}

	var fleet sync.WaitGroup
	errs := make([]error, fleetSize)
	for i := range errs {
		id := fmt.Sprintf("fleet-%d", i)
		sent = append(sent, id)
		fleet.Go(func() { errs[i] = c.greet(ctx, id, group.PrimaryKey, options) })
	}
	fleet.Wait()
	c.say("service", "has told", told.Load(), "of", fleetSize, "devices to come later, and assigned all")
	return sent, errors.Join(errs...)
}

// greet registers a device, connects it to its hub and sends a message.
func (c *cloud) greet(ctx context.Context, id, groupKey string, o *provisioning.Options) error {
	key, err := provisioning.DeriveKey(groupKey, id) // in the factory; the device never sees the key of the group
	if err != nil {
		return err
	}
	registrar, err := c.registrar(id, key, o)
	if err != nil {
		return err
	}
	assignment, err := registrar.Register(ctx)
	if err != nil {
		return err
	}
	hub := mqtt.New(&mqtt.Options{Network: c.network(assignment.Hub)})
	client, err := device.New(registrar.Credentials(assignment), hub, nil)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Open(ctx); err != nil {
		return err
	}
	return client.Send(ctx, &transport.Message{ID: id, Body: []byte("hello")})
}
