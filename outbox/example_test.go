package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A process puts a message without a hub and ends. The next process delivers it.
func Example() {
	folder, err := os.MkdirTemp("", "outbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	ctx := context.Background()

	q, err := outbox.Open(folder, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := q.Put(ctx, &transport.Message{ID: "1", Body: []byte("hello")}); err != nil {
		log.Fatal(err)
	}
	if err := q.Close(); err != nil {
		log.Fatal(err)
	}

	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("dev-1"); err != nil {
		log.Fatal(err)
	}
	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}}), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.Start(); err != nil {
		log.Fatal(err)
	}

	if q, err = outbox.Open(folder, nil); err != nil {
		log.Fatal(err)
	}
	defer q.Close()
	go func() { // ends with Close
		if err := q.Run(ctx, client); !errors.Is(err, transport.Closed) {
			log.Print(err)
		}
	}()
	if err := q.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	for _, m := range hub.Messages() {
		fmt.Println(m.MessageID, string(m.Body))
	}
	// Output: 1 hello
}
