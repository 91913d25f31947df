// Command provisioning shows how devices get their hub from a provisioning service (DPS). Two hubs
// and the service run in this process.
//
//   - meter.go: a device is moved from hub A to hub B while it sends. Its outbox is on the disk.
//   - fleet.go: 100 devices register at once with a service that throttles them.
//
// The ledger at the end counts messages and requests. The exit status is 0 only if no message was
// lost.
//
//	go run ./examples/provisioning
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpsmqtt"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // it takes a quarter of a minute
	defer cancel()
	c, err := newCloud()
	if err != nil {
		return err
	}
	defer c.close()

	fmt.Println("A device is moved while it sends.")
	readings, err := c.moveTheMeter(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d devices register at once, and the service is busy.\n", fleetSize)
	greetings, err := c.registerTheFleet(ctx)
	if err != nil {
		return err
	}

	fmt.Println("\nledger       sent    at A    at B    lost   twice   requests to the service, beyond the needed")
	return errors.Join(
		c.account("meter", readings, 2).print(), // it registered twice
		c.account("fleet", greetings, fleetSize).print(),
	)
}

const hubA, hubB = "hub-a.example.test", "hub-b.example.test"

// cloud is what devices need: two hubs, and the service that assigns devices to them.
type cloud struct {
	began   time.Time
	hubs    map[string]*testbroker.Hub
	service *testbroker.DPS
}

func newCloud() (*cloud, error) {
	service, err := testbroker.NewDPS(nil)
	if err != nil {
		return nil, err
	}
	c := &cloud{time.Now(), map[string]*testbroker.Hub{}, service}
	for _, name := range []string{hubA, hubB} {
		hub, err := testbroker.New(&testbroker.Options{HostName: name})
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.hubs[name] = hub
		if err := service.Link(hub); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (c *cloud) close() error {
	err := c.service.Close()
	for _, hub := range c.hubs {
		err = errors.Join(err, hub.Close())
	}
	return err
}

// say prints a line with the time since the start.
func (c *cloud) say(who string, what ...any) {
	fmt.Printf("%6.2fs  %-9s %s", time.Since(c.began).Seconds(), who, fmt.Sprintln(what...))
}

// registrar returns the client with which a device registers. A real device needs the ID scope, its
// registration id and its key; without network settings it asks the public service.
func (c *cloud) registrar(id, key string, o *provisioning.Options) (*provisioning.Client, error) {
	sign, err := transport.SharedKey(key)
	if err != nil {
		return nil, err
	}
	identity := &provisioning.Identity{
		Endpoint: c.service.HostName(), IDScope: c.service.IDScope(), RegistrationID: id, Sign: sign,
	}
	network := &netopt.Options{Dial: c.service.Dial(testbroker.PortMQTTS), TLS: c.service.ClientTLS()}
	return provisioning.New(identity, dpsmqtt.New(network), o)
}

// network returns the network settings for a hub, which a real device does not need either.
func (c *cloud) network(hub string) netopt.Options {
	return netopt.Options{Dial: c.hubs[hub].Dial(testbroker.PortMQTTS), TLS: c.hubs[hub].ClientTLS()}
}
