package http_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy/envproxy"
)

// A device over HTTPS. Messages sent during a request travel together in the next one.
func ExampleNew() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("thermometer"); err != nil {
		panic(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("thermometer"))
	if err != nil {
		panic(err)
	}

	ctx := context.Background()
	client, err := device.New(creds, http.New(&http.Options{Network: netopt.Options{Dial: hub.Dial(testbroker.PortHTTPS),
		TLS: hub.ClientTLS()}}),
		nil)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	if err := client.Open(ctx); err != nil {
		panic(err)
	}
	for i := range 3 {
		m := &transport.Message{ID: fmt.Sprint("m-", i), Body: []byte("21.5")}
		if err := client.Enqueue(ctx, m, nil); err != nil {
			panic(err)
		}
	}
	if err := client.Flush(ctx); err != nil {
		panic(err)
	}
	for _, m := range hub.Messages() {
		fmt.Println(m.MessageID, string(m.Body))
	}
	// Output:
	// m-0 21.5
	// m-1 21.5
	// m-2 21.5
}

// The client polls for cloud-to-device messages every PollInterval, and at once after a message.
func ExampleOptions_messages() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("lamp"); err != nil {
		panic(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("lamp"))
	if err != nil {
		panic(err)
	}
	if err := hub.SendC2D("lamp", hubdata.C2D{Body: []byte("on")}); err != nil {
		panic(err)
	}

	done := make(chan string)
	t := http.New(&http.Options{Network: netopt.Options{Dial: hub.Dial(testbroker.PortHTTPS), TLS: hub.ClientTLS()},
		PollInterval: time.Hour})
	client, err := device.New(creds, t, nil)
	if err != nil {
		panic(err)
	}
	client.HandleMessages(func(_ context.Context, m *transport.Message) error {
		done <- string(m.Body)
		return nil
	})
	defer client.Close()
	if err := client.Open(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println("the lamp is to be", <-done)
	// Output: the lamp is to be on
}

// A device whose clock cannot be trusted uses the hub's.
func ExampleTransport_Now() {
	t := http.New(nil)
	creds := &transport.Credentials{Host: "hub1.example.test", DeviceID: "dev-1", Now: t.Now}
	_, known := t.Skew()
	fmt.Println(creds.Time().After(time.Unix(0, 0)), known)
	// Output: true false
}

// Uses the proxy that the environment names.
func ExampleOptions_proxy() {
	t := http.New(&http.Options{Network: netopt.Options{Proxy: envproxy.Find}})
	fmt.Printf("%T\n", t)
	// Output: *http.Transport
}

func Example_statusError() {
	hub, err := testbroker.New(nil)
	if err != nil {
		panic(err)
	}
	defer hub.Close()
	creds := &transport.Credentials{Host: hub.HostName(),
		DeviceID: "nobody", Sign: func(context.Context, []byte) ([]byte, error) { return make([]byte, 32), nil }}

	_, err = http.New(&http.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortHTTP)}}).Dial(
		context.Background(),
		&transport.Config{Creds: creds})
	if said, ok := errors.AsType[*transport.StatusError](err); ok {
		fmt.Println(said.Status, said.Code, said.Name, "not found:", errors.Is(err, transport.NotFound))
	}
	// Output: 404 404001 DeviceNotFound not found: true
}
