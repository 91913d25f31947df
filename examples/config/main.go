// Command config is a device that is configured by its twin while it runs: the interval between two
// messages, the retry policy by name with its parameters, and the level of the log. It reports what
// is in force, with status, version and description, refuses invalid values by name, and keeps the
// settings in a file, so that it starts with them without a network.
//
// Without a connection string it starts its own hub, whose back end changes the settings, gives an
// invalid one, and restarts the device during an outage. The exit status is 0 only if the device
// reported exactly what it should, and the restart kept the settings.
//
//	go run ./examples/config                     over MQTT
//	go run ./examples/config -transport amqp     the same over AMQP 1.0
//	HUBLINE_CONNECTION_STRING=... go run ./examples/config -file config.json    a real hub's device
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func main() {
	var to setup.Target
	to.Flags()
	transport := flag.String("transport", "mqtt",
		"what carries the twin: mqtt, amqp or amqp-ws")
	file := flag.String("file", "", "`path` of the file that keeps the settings; empty: one that is removed at the end")
	setup.Main(0, &to, func(ctx context.Context) error { return run(ctx, *transport, *file, to) })
}

func run(ctx context.Context, name, file string, to setup.Target) error {
	own, err := setup.NewDevice(ctx, name, to)
	if err != nil {
		return err
	}
	defer own.Close()
	if file == "" {
		dir, err := os.MkdirTemp("", "config")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		file = filepath.Join(dir, "config.json")
	}
	if own.Hub == nil {
		fmt.Println("change the desired properties interval, retry and level of the device's twin; Ctrl-C ends")
		return live(ctx, own, file, func(*program) error { <-ctx.Done(); return nil })
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	b := &backEnd{own.Hub, own.Creds.DeviceID}
	err = live(ctx, own, file, func(*program) error { return b.configure(ctx) })
	if err != nil {
		return err
	}
	fmt.Println("network  is gone, and the device restarts")
	outage := own.Hub.Inject(fault.Fault{Kind: fault.Absent, Times: -1})
	return live(ctx, own, file, func(p *program) error { return b.afterRestart(ctx, p, outage) })
}

// live runs the device's program while act runs.
func live(ctx context.Context, own *setup.Device, file string, act func(p *program) error) error {
	p, err := start(own.Creds, own.Transport, file)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var readings sync.WaitGroup
	readings.Go(func() { p.run(ctx) })
	err = act(p)
	cancel()
	readings.Wait()
	return errors.Join(err, p.close())
}

// backEnd is the back end of the in-process hub.
type backEnd struct {
	hub *testbroker.Hub
	id  string
}

// answer is a reported property: the value in force, with status, version and description.
func answer(name, value string, status int, version int64, text string) string {
	return fmt.Sprintf(`"%s":{"ac":%d,"ad":"%s","av":%d,"value":%s}`, name, status, text, version, value)
}

const (
	fixed     = `{"max":0.5,"min":0.1,"name":"fixed"}`
	noPolicy  = "field retry.name: give one of exponential, fixed, none"
	byDefault = "by default"
)

func (b *backEnd) desire(patch string) error {
	version, err := b.hub.PatchDesired(b.id, patch)
	fmt.Printf("back end desires %s: version %d\n", patch, version)
	return err
}

// reported waits until the device has reported want.
func (b *backEnd) reported(ctx context.Context, answers ...string) error {
	want := "{" + strings.Join(answers, ",") + "}"
	err := b.hub.WaitReported(ctx, b.id, func(t hubdata.Twin) bool { return string(t.Reported) == want })
	if err != nil {
		twin, _ := b.hub.Twin(b.id)
		return fmt.Errorf("the device reports %s, want %s: %w", twin.Reported, want, err)
	}
	fmt.Println("back end sees reported", want)
	return nil
}

func (b *backEnd) configure(ctx context.Context) error {
	err := errors.Join(
		b.reported(ctx, answer("interval", "1", 203, 1, byDefault), answer("level", `"info"`, 203, 1, byDefault),
			answer("retry", `{"max":10,"min":0.1,"name":"exponential"}`, 203, 1, byDefault)),
		b.desire(`{"interval":0.05,"level":"debug","retry":{"name":"fixed","max":0.5}}`),
		b.reported(ctx, answer("interval", "0.05", 200, 2, ""), answer("level", `"debug"`, 200, 2, ""),
			answer("retry", fixed, 200, 2, "")),
		b.desire(`{"retry":{"name":"hope"}}`),
		b.reported(ctx, answer("interval", "0.05", 200, 2, ""), answer("level", `"debug"`, 200, 2, ""),
			answer("retry", fixed, 400, 3, noPolicy)),
	)
	if err != nil {
		return err
	}
	return b.hub.WaitMessages(ctx, b.hub.Len()+5) // at the new interval
}

// afterRestart checks that a device without a network has the settings of before, and follows the
// twin when the network is back.
func (b *backEnd) afterRestart(ctx context.Context, p *program, outage *testbroker.Injected) error {
	want := settings{0.05, policy{"fixed", 0.1, 0.5}, "debug"}
	if got := p.binding.Value(); got != want {
		return fmt.Errorf("after the restart the settings are %+v, want %+v", got, want)
	}
	fmt.Printf("device   has the settings %+v without a network\n", want)
	if err := outage.WaitFired(ctx, 2); err != nil {
		return err
	}
	outage.Remove()
	fmt.Println("network  is back")
	if err := p.client.Open(ctx); err != nil {
		return err
	}
	return errors.Join(
		b.reported(ctx, answer("interval", "0.05", 200, 3, ""), answer("level", `"debug"`, 200, 3, ""),
			answer("retry", fixed, 400, 3, noPolicy)),
		b.desire(`{"retry":{"name":"none"},"level":null}`),
		b.reported(ctx, answer("interval", "0.05", 200, 3, ""), answer("level", `"info"`, 203, 4, byDefault),
			answer("retry", `{"max":0.5,"min":0.1,"name":"none"}`, 200, 4, "")),
	)
}
