// Command methods is a device with direct methods that a back end calls.
//
// Without a connection string it starts its own hub. The hub's back end calls existing methods and
// a missing one, calls one while the device is disconnected, and reboots the device. The exit
// status is 0 only if every call had the expected answer and ran once.
//
//	go run ./examples/methods                     over MQTT
//	go run ./examples/methods -transport amqp     the same over AMQP 1.0
//	HUBLINE_CONNECTION_STRING=... go run ./examples/methods    a real hub's device, until Ctrl-C
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func main() {
	var to setup.Target
	to.Flags()
	transport := flag.String("transport", "mqtt",
		"what carries the calls: mqtt, amqp or amqp-ws")
	setup.Main(0, &to, func(ctx context.Context) error { return run(ctx, *transport, to) })
}

// rebootAfter is the delay of a requested reboot.
const rebootAfter = time.Second

func run(ctx context.Context, name string, to setup.Target) error {
	own, err := setup.NewDevice(ctx, name, to)
	if err != nil {
		return err
	}
	defer own.Close()
	connected := make(chan struct{}, 16)
	client, err := device.New(own.Creds, own.Transport, &device.Options{OnStatus: func(s device.Status) {
		fmt.Println("device  ", s.State, s.Reason)
		if s.State == device.StateConnected {
			select {
			case connected <- struct{}{}:
			default: // no receiver: the target is a real hub
			}
		}
	}})
	if err != nil {
		return err
	}
	defer client.Close()

	var blinks atomic.Int64
	reboots := make(chan error, 1)
	err = errors.Join(
		client.HandleMethod("blink", func(_ context.Context, m *device.MethodCall) (int, []byte) {
			var times int
			if err := json.Unmarshal(m.Body, &times); err != nil || times < 1 {
				return 400, []byte(`{"message":"give a number of 1 or more"}`)
			}
			fmt.Printf("device   blinks %d times\n", times)
			blinks.Add(int64(times))
			return 200, fmt.Appendf(nil, `{"blinked":%d}`, times)
		}),
		// The answer must use the connection that brought the call. So the reboot, here a new connection,
		// follows later.
		client.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) {
			time.AfterFunc(rebootAfter, func() { reboots <- client.Reconnect() })
			return 202, []byte(`{"reboot":"in a second"}`)
		}),
	)
	if err != nil {
		return err
	}
	if err := client.Open(ctx); err != nil {
		return err
	}
	if own.Hub == nil {
		fmt.Println("call the methods blink, with a number, and reboot; Ctrl-C ends")
		<-ctx.Done()
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rebooted := func() error {
		for range 3 { // once more, after the first connection and the outage
			select {
			case <-connected:
			case <-ctx.Done():
				return fmt.Errorf("the device did not reboot: %w", ctx.Err())
			}
		}
		return <-reboots
	}
	if err := callMethods(ctx, own.Hub, own.Creds.DeviceID, rebooted); err != nil {
		return err
	}
	if n := blinks.Load(); n != 3+5+7 {
		return fmt.Errorf("the device blinked %d times, want 15: each call is to run once", n)
	}
	s := client.Stats()
	fmt.Printf("in order: %d methods ran, %d calls were refused, %d connections\n", s.MethodCalls, s.MethodsRefused,
		s.Connections)
	return client.Close()
}

// callMethods is the back end.
func callMethods(ctx context.Context, hub *testbroker.Hub, id string, rebooted func() error) error {
	call := func(method, payload string, connectTimeout time.Duration, want string) error {
		result, err := hub.CallMethod(ctx, id, hubdata.MethodCall{Name: method, Payload: []byte(payload),
			ConnectTimeout: connectTimeout})
		got := fmt.Sprintf("%d %s", result.Status, result.Payload)
		var failure *hubdata.ServiceError
		if errors.As(err, &failure) {
			got = fmt.Sprintf("error %d", failure.Code)
		}
		fmt.Printf("back end calls %s %s: %s\n", method, payload, got)
		if got != want {
			return fmt.Errorf("method %s %s: %s, want %s (%w)", method, payload, got, want, err)
		}
		return nil
	}
	const long = 30 * time.Second // time that a call waits for a disconnected device; 0: it fails at once
	err := errors.Join(
		call("blink", "3", 0, `200 {"blinked":3}`),
		call("blink", `"often"`, 0, `400 {"message":"give a number of 1 or more"}`),
		call("dance", "", 0, `404 {"message":"the device has no such method"}`),
	)
	if err != nil {
		return err
	}

	fmt.Println("network  is gone")
	outage := hub.Inject(fault.Fault{Kind: fault.Absent, Times: -1})
	gone := func([]hubdata.Message) bool { return hub.Connections(id) == 0 }
	if err := hub.Wait(ctx, gone); err != nil { // a call on the ending connection would never be answered
		return err
	}
	waiting := make(chan error, 1)
	go func() { waiting <- call("blink", "5", long, `200 {"blinked":5}`) }()
	if err := errors.Join(call("blink", "9", 0, "error 404103"), outage.WaitFired(ctx, 2)); err != nil {
		// cut, and one connect refused
		return err
	}
	outage.Remove()
	fmt.Println("network  is back")
	if err := <-waiting; err != nil {
		return err
	}

	if err := call("reboot", "", 0, `202 {"reboot":"in a second"}`); err != nil {
		return err
	}
	if err := rebooted(); err != nil {
		return err
	}
	return call("blink", "7", long, `200 {"blinked":7}`)
}
