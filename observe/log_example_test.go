package observe_test

import (
	"context"
	"log"
	"log/slog"
	"os"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func ExampleLog() {
	hub, err := testbroker.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer hub.Close()
	if _, err := hub.AddDevice("dev-1"); err != nil {
		log.Fatal(err)
	}
	hub.Inject(fault.Fault{Kind: fault.RefuseConnect}) // only the first connection

	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: keep}))
	options := &device.Options{}
	observe.Log(options, logger.With("device", "dev-1"))

	creds, err := device.ParseConnectionString(hub.ConnectionString("dev-1"))
	if err != nil {
		log.Fatal(err)
	}
	client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}}),
		options)
	if err != nil {
		log.Fatal(err)
	}
	if err := client.Open(context.Background()); err != nil {
		log.Fatal(err)
	}
	client.Close()
	// Output:
	// level=WARN msg="an attempt to connect to the hub failed" device=dev-1 retry=1 delay=100ms kind="service unavailable"
	// level=INFO msg="the connection to the hub is up" device=dev-1 retry=1
	// level=INFO msg="the client was closed" device=dev-1
}

// keep keeps only a few attributes, for lines that fit on a page.
func keep(_ []string, a slog.Attr) slog.Attr {
	switch a.Key {
	case slog.LevelKey, slog.MessageKey, "device", "retry", "delay", "kind":
		return a
	}
	return slog.Attr{}
}
