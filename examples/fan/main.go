// Command fan is a device with several features: it sends a reading, reports the state of its fan,
// uploads a log file, receives cloud-to-device messages and answers the method "reboot".
//
// Without a connection string it starts its own hub. The hub's back end checks all that, sends a
// cloud-to-device message and calls the method. The exit status is 0 only if everything arrived.
// With a connection string it runs until Ctrl-C: it is the device of the examples in
// cmd/testhub/README.md.
//
//	go run ./examples/fan                     over MQTT
//	go run ./examples/fan -transport amqp     the same over AMQP 1.0
//	HUBLINE_CONNECTION_STRING=... go run ./examples/fan -hub $HUB    a testhub's device
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

func main() {
	var to setup.Target
	to.Flags()
	name := flag.String("transport", "mqtt", "what carries all but the file: mqtt, amqp or amqp-ws")
	setup.Main(0, &to, func(ctx context.Context) error { return run(ctx, *name, to) })
}

func run(ctx context.Context, name string, to setup.Target) error {
	own, err := setup.NewDevice(ctx, name, to)
	if err != nil {
		return err
	}
	defer own.Close()
	client, err := device.New(own.Creds, own.Transport, &device.Options{
		OnStatus: func(s device.Status) { fmt.Println("device  ", s.State, s.Reason) },
	})
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.HandleMessages(func(_ context.Context, m *transport.Message) error {
		fmt.Printf("device   gets the command %q: %s\n", m.ID, m.Body)
		return nil // completes the message
	})
	if err != nil {
		return err
	}
	err = client.HandleMethod("reboot", func(_ context.Context, m *device.MethodCall) (int, []byte) {
		fmt.Printf("device   is asked to reboot: %s\n", m.Body)
		return 200, m.Body
	})
	if err != nil {
		return err
	}
	if err := begin(ctx, client, own); err != nil {
		return err
	}
	if own.Hub == nil {
		fmt.Println("ready; Ctrl-C ends it")
		<-ctx.Done()
		return client.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return errors.Join(look(ctx, own.Hub, own.Creds.DeviceID), client.Close())
}

// begin runs the actions that the device starts itself.
func begin(ctx context.Context, client *device.Client, own *setup.Device) error {
	if err := client.Open(ctx); err != nil {
		return err
	}
	reading := &transport.Message{ID: "1", Body: []byte(`{"temperature":21.5}`),
		Properties: []transport.Property{{Name: "unit", Value: "C"}}}
	if err := client.Send(ctx, reading); err != nil {
		return err
	}
	if _, err := client.PatchReported(ctx, []byte(`{"fan":{"on":true,"speed":3}}`)); err != nil {
		return err
	}
	web, err := own.Web(ctx)
	if err != nil {
		return err
	}
	uploader, err := fileupload.New(own.Creds, &fileupload.Options{Network: web})
	if err != nil {
		return err
	}
	_, err = uploader.Upload(ctx, "logs/today.txt", strings.NewReader("sunny"), -1)
	if err = errors.Join(err, uploader.Close()); err != nil {
		return err
	}
	fmt.Println("device   has sent a reading, reported its fan and uploaded logs/today.txt")
	return nil
}

// look is the back end: it checks the device's data and triggers its reactions.
func look(ctx context.Context, hub *testbroker.Hub, id string) error {
	err := errors.Join(
		hub.WaitMessages(ctx, 1),
		hub.WaitReported(ctx, id, func(t hubdata.Twin) bool {
			return string(t.Reported) == `{"fan":{"on":true,"speed":3}}`
		}),
		hub.WaitUploads(ctx, 1),
		hub.SendC2D(id, hubdata.C2D{MessageID: "c-1", Body: []byte(`{"on":true}`)}),
		hub.WaitC2D(ctx, id, hubdata.C2DCompleted, 1),
	)
	if err != nil {
		return err
	}
	result, err := hub.CallMethod(ctx, id, hubdata.MethodCall{Name: "reboot", Payload: []byte(`{"in":5}`)})
	if err != nil {
		return err
	}
	if up := hub.Uploads()[0]; up.State != hubdata.UploadSucceeded || result.Status != 200 {
		return fmt.Errorf("the upload has %v, the method %d", up.State, result.Status)
	}
	fmt.Println("back end has seen it all; the command is completed, the method answered")
	return nil
}
