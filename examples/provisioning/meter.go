package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

const (
	readings = 120
	interval = 50 * time.Millisecond
)

// moveTheMeter runs a device that the back end moves from hub A to hub B while it sends. It returns
// the ids of the messages.
func (c *cloud) moveTheMeter(ctx context.Context) (sent []string, err error) {
	enrollment, err := c.service.Enroll(dpsdata.Enrollment{ID: "meter", Hubs: []string{hubA}})
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "meter") // a device has a folder of its own: /var/lib/meter
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)

	// The device does not know its hub. This transport asks the service, keeps the assignment in a
	// file, and asks again when the hub refuses the device.
	registrar, err := c.registrar("meter", enrollment.PrimaryKey, &provisioning.Options{
		OnEvent: func(e provisioning.Event) { c.say("service", e) },
	})
	if err != nil {
		return nil, err
	}
	toHub := func(creds *transport.Credentials, _ *provisioning.Assignment) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: c.network(creds.Host)})
	}
	t, err := dpstransport.New(registrar, toHub, &dpstransport.Options{
		Store:   dpstransport.File(filepath.Join(folder, "assignment")),
		OnEvent: func(e dpstransport.Event) { c.say("device", e.Step, e.Hub+reason(e.Err)) },
	})
	if err != nil {
		return nil, err
	}
	client, err := device.New(t.Credentials(), t, &device.Options{
		OnStatus: func(s device.Status) { c.say("device", line(s)) },
	})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if err := client.Start(); err != nil { // connects in the background
		return nil, err
	}

	// Readings are on the disk before they are sent, and stay there until a hub has them.
	queue, err := outbox.Open(filepath.Join(folder, "outbox"), nil)
	if err != nil {
		return nil, err
	}
	defer queue.Close()
	go queue.Run(ctx, client)

	for i := range readings {
		if i == readings*2/3 {
			if err := c.moveToB(); err != nil {
				return nil, err
			}
		}
		id := fmt.Sprintf("meter-%d", i)
		if err := queue.Put(ctx, &transport.Message{ID: id, Body: []byte("42 kWh")}); err != nil {
			return nil, err
		}
		sent = append(sent, id)
		time.Sleep(interval)
	}
	c.say("device", "has read all; on the disk, not at a hub yet:", queue.Stats().Waiting)
	return sent, queue.Flush(ctx)
}

// moveToB is what the back end does: the next registration of the device leads to hub B, and hub A
// does not know the device any more.
func (c *cloud) moveToB() error {
	c.say("back end", "moves the device to", hubB, "and deletes it at", hubA)
	if err := c.service.Move("meter", hubB); err != nil {
		return err
	}
	return c.hubs[hubA].RemoveDevice("meter")
}

// line describes a status of the connection: the reason, and what follows when.
func line(s device.Status) string {
	text := fmt.Sprint(s.State, ", ", s.Reason)
	if s.Delay > 0 {
		text += fmt.Sprintf(", retry %d in %v", s.Retry, s.Delay.Round(time.Millisecond))
	}
	return text + reason(s.Err)
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}
