// Command twin is a device that applies its desired properties and reports that.
//
// Without a connection string it starts its own hub, whose back end changes the desired properties:
// once while the device is connected, three times while it is disconnected. The device receives the
// first change, and after the outage the then desired properties, once. The exit status is 0 only
// if it received exactly that, and the hub has all answers.
//
//	go run ./examples/twin                     over MQTT
//	go run ./examples/twin -transport amqp     the same over AMQP 1.0
//	HUBLINE_CONNECTION_STRING=... go run ./examples/twin    a real hub's device, until Ctrl-C
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/twin"
)

func main() {
	var to setup.Target
	to.Flags()
	transport := flag.String("transport", "mqtt",
		"what carries the twin: mqtt, amqp or amqp-ws")
	setup.Main(0, &to, func(ctx context.Context) error { return run(ctx, *transport, to) })
}

// received has the changes that the handler received, such as "full 5".
type received struct {
	mu   sync.Mutex
	list []string
}

func run(ctx context.Context, name string, to setup.Target) error {
	own, err := setup.NewDevice(ctx, name, to)
	if err != nil {
		return err
	}
	defer own.Close()
	client, err := device.New(own.Creds,
		own.Transport, &device.Options{OnStatus: func(s device.Status) { fmt.Println("device  ", s.State, s.Reason) }})
	if err != nil {
		return err
	}
	defer client.Close()

	var seen received
	err = client.HandleDesired(func(ctx context.Context, d device.Desired) { seen.handle(ctx, client, d) })
	if err != nil {
		return err
	}
	if err := client.Open(ctx); err != nil {
		return err
	}
	if own.Hub == nil {
		fmt.Println("change the desired property \"interval\" of the device's twin; Ctrl-C ends")
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := changeDesired(ctx, own.Hub, own.Creds.DeviceID); err != nil {
		return err
	}
	twin, err := client.GetTwin(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("device   reads its twin: desired %s, reported %s\n", twin.Desired, twin.Reported)
	return errors.Join(client.Close(), seen.check("full 1", "patch 2", "full 5"))
}

// take answers each change of the interval with the new value.
func (t *received) handle(ctx context.Context, client *device.Client, d device.Desired) {
	what := fmt.Sprintf("patch %d", d.Version)
	if d.Full {
		what = fmt.Sprintf("full %d", d.Version)
	}
	fmt.Printf("device   received: %s: %s\n", what, d.JSON)
	t.mu.Lock()
	t.list = append(t.list, what)
	t.mu.Unlock()

	properties, err := twin.Properties(d)
	var patch twin.Patch
	if d.Full {
		patch.Initial("", "interval", 10, "by default") // unless one is desired
	}
	for _, property := range properties {
		if property.Name == "interval" {
			patch.Answer(property, twin.Answer{Status: twin.StatusOK})
		}
	}
	if err == nil && !patch.Empty() {
		var body []byte
		if body, err = patch.JSON(); err == nil {
			_, err = client.PatchReported(ctx, body)
		}
	}
	if err != nil {
		fmt.Println("device   cannot answer:", err)
	}
}

func (t *received) check(want ...string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Equal(t.list, want) {
		return fmt.Errorf("the device received %q, want %q", t.list, want)
	}
	fmt.Printf("in order: received %q, each once\n", t.list)
	return nil
}

// changeDesired is the back end.
func changeDesired(ctx context.Context, hub *testbroker.Hub, id string) error {
	desire := func(seconds int) error {
		version, err := hub.PatchDesired(id, fmt.Sprintf(`{"interval":%d}`, seconds))
		fmt.Printf("back end desires an interval of %d seconds: version %d\n", seconds, version)
		return err
	}
	answered := func(want string) error {
		err := hub.WaitReported(ctx, id, func(t hubdata.Twin) bool { return string(t.Reported) == want })
		fmt.Println("back end sees reported", want)
		return err
	}
	err := errors.Join(
		answered(`{"interval":{"ac":203,"ad":"by default","av":0,"value":10}}`),
		desire(30), answered(`{"interval":{"ac":200,"ad":"","av":2,"value":30}}`),
	)
	if err != nil {
		return err
	}
	fmt.Println("network  is gone")
	outage := hub.Inject(fault.Fault{Kind: fault.Absent, Times: -1})
	if err := errors.Join(desire(40), desire(50), desire(60)); err != nil {
		return err
	}
	if err := outage.WaitFired(ctx, 2); err != nil { // cut, and one connect refused
		return err
	}
	outage.Remove()
	fmt.Println("network  is back")
	return answered(`{"interval":{"ac":200,"ad":"","av":5,"value":60}}`)
}
