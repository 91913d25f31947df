package device_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// exampleHub is an in-process hub with one device; the examples connect to it in memory. A program
// uses mqtt.New(nil) and its device's connection string instead.
func exampleHub() (hub *testbroker.Hub, connect string, overMemory *mqtt.Transport) {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := hub.AddDevice("dev-1"); err != nil {
		log.Fatal(err)
	}
	return hub, hub.ConnectionString("dev-1"),
		mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}})
}

func Example() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()

	creds, err := device.ParseConnectionString(connect)
	if err != nil {
		log.Fatal(err)
	}
	client, err := device.New(creds, overMemory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	if err := client.Send(ctx, &transport.Message{ID: "1", Body: []byte(`{"temperature":21.5}`)}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Status().State)
	fmt.Println(string(hub.Messages()[0].Body))
	// Output:
	// connected
	// {"temperature":21.5}
}

// A few receipts keep a window in flight; each is reused when its message has its result. Readings
// taken before the first connection wait in the queue.
func ExampleClient_Enqueue() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()
	creds, _ := device.ParseConnectionString(connect)
	client, err := device.New(creds, overMemory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	var receipts [4]device.Receipt
	for i := range 10 {
		r := &receipts[i%len(receipts)]
		if i == len(receipts) {
			if err := client.Open(ctx); err != nil {
				log.Fatal(err)
			}
		}
		if i >= len(receipts) {
			if err := r.Wait(ctx); err != nil {
				log.Print("reading lost: ", err)
			}
		}
		if err := client.Enqueue(ctx, &transport.Message{Body: []byte{byte(i)}}, r); err != nil {
			log.Fatal(err)
		}
	}
	if err := client.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(hub.Len(), "readings,", client.Stats().Acknowledged, "acknowledged")
	// Output: 10 readings, 10 acknowledged
}

// OnStatus reports each step of the connection.
func ExampleOptions_onStatus() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()
	hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 3})

	creds, _ := device.ParseConnectionString(connect)
	client, err := device.New(creds, overMemory, &device.Options{
		OnStatus: func(s device.Status) {
			fmt.Printf("%v, %v", s.State, s.Reason)
			if s.Err != nil {
				fmt.Printf(": %v; retry %d in %v", s.Err, s.Retry, s.Delay)
			}
			fmt.Println()
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Open(context.Background()); err != nil {
		log.Fatal(err)
	}
	client.Close()
	// Output:
	// retrying, connecting
	// retrying, attempt failed: mqtt dial: service unavailable: CONNACK 3 (server unavailable); retry 1 in 100ms
	// retrying, connecting
	// connected, connection ok
	// disconnected, client closed
}

// A custom policy gets the number of the retry and the latest error. It is only asked about
// retryable errors.
func ExampleClient_SetRetryPolicy() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()
	hub.Inject(fault.Fault{Kind: fault.DropConnect, Times: -1})

	creds, _ := device.ParseConnectionString(connect)
	client, err := device.New(creds, overMemory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.SetRetryPolicy(retrypolicy.Func(func(retry int, last error) (again bool, delay time.Duration) {
		return retry <= 1, 10 * time.Millisecond
	}))
	if err != nil {
		log.Fatal(err)
	}

	err = client.Open(context.Background())
	fmt.Println("retries ended:", errors.Is(err, transport.RetryExpired))
	fmt.Println("because of the network:", errors.Is(err, transport.Network))
	fmt.Println("attempts:", client.Stats().Attempts)
	// Output:
	// retries ended: true
	// because of the network: true
	// attempts: 2
}

// Terminal failures are not retried, and the hint says what helps.
func ExampleStatus_Hint() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()
	_ = hub.SetEnabled("dev-1", false)

	creds, _ := device.ParseConnectionString(connect)
	client, err := device.New(creds, overMemory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Open(context.Background())
	fmt.Println("unauthorized:", errors.Is(err, transport.Unauthorized))
	fmt.Println("retryable:", errfilter.Retryable(err))
	fmt.Println(client.Status().Hint())
	// Output:
	// unauthorized: true
	// retryable: false
	// the same credentials would be refused again; check key or certificate chain, device id, the clock, and that the device is enabled
}

// Cloud-to-device messages go to a handler; its return value settles them. Each
// connection subscribes before it counts as connected.
func ExampleOptions_onMessage() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()
	creds, _ := device.ParseConnectionString(connect)
	client, err := device.New(creds, overMemory, nil)
	if err != nil {
		log.Fatal(err)
	}
	client.HandleMessages(func(ctx context.Context, m *transport.Message) error {
		fmt.Println("message:", string(m.Body))
		return nil // accepted: the hub deletes it
	})
	defer client.Close()
	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	if err := hub.SendC2D("dev-1", hubdata.C2D{MessageID: "c-1", Body: []byte("blink")}); err != nil {
		log.Fatal(err)
	}
	if err := hub.WaitC2D(ctx, "dev-1", hubdata.C2DCompleted, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println("completed")
	// Output:
	// message: blink
	// completed
}

// An unattended device starts from scratch after a terminal failure. A fleet spreads its
// reconnects. The clients of one process share a limit.
func ExampleOptions_unattended() {
	limit := device.NewDialLimiter(4, 20*time.Millisecond)
	options := &device.Options{
		TryAgainAfter:   time.Hour,
		ReconnectSpread: 30 * time.Second,
		Dials:           limit,
		Overflow:        device.OverflowDropOldest,
	}
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "buoy-12"}
	client, err := device.New(creds, mqtt.New(nil), options)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.Status().State, client.Close())
	// Output: disconnected <nil>
}

// The trace reports details that the status leaves out: here the policy's decisions.
func ExampleTrace() {
	hub, connect, overMemory := exampleHub()
	defer hub.Close()
	hub.Inject(fault.Fault{Kind: fault.DropConnect})
	creds, _ := device.ParseConnectionString(connect)
	client, err := device.New(creds, overMemory, &device.Options{Trace: &device.Trace{
		Decision: func(a retrypolicy.Attempt, d retrypolicy.Decision) {
			fmt.Printf("%v failed, %v: retry %d after %v\n", a.Scope, a.Kind, a.Retry, d.Delay)
		},
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.Open(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output: connection failed, network failure: retry 1 after 100ms
}

// A module filters: what comes by the input "readings" leaves by the output "alarms".
func ExampleClient_HandleInput() {
	hub, _, overMemory := exampleHub()
	defer hub.Close()
	module, err := hub.AddModule("dev-1", "filter")
	if err != nil {
		log.Fatal(err)
	}
	creds, err := device.ParseConnectionString(module.ConnectionString()) // or edge.FromEnvironment
	if err != nil {
		log.Fatal(err)
	}
	client, err := device.New(creds, overMemory, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	client.HandleInput("readings", func(ctx context.Context, m *transport.Message) error {
		return client.Send(ctx, &transport.Message{Output: "alarms", Body: append([]byte("hot: "), m.Body...)})
	})

	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	if err := hub.SendInput("dev-1/filter", "readings", hubdata.C2D{Body: []byte("93")}); err != nil {
		log.Fatal(err)
	}
	if err := hub.WaitMessages(ctx, 1); err != nil {
		log.Fatal(err)
	}
	m := hub.Messages()[0]
	fmt.Println(m.ModuleID, m.Output, string(m.Body))
	// Output:
	// filter alarms hot: 93
}
