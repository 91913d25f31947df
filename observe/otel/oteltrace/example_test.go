package oteltrace_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func ExampleTracer() {
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
	exporter := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter)) // in a program: sdk.WithBatcher with its exporter

	tracer := oteltrace.New(provider, nil)
	client, err := device.New(creds, tracer.Transport(mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true,
		Dial: hub.Dial(testbroker.PortMQTT)}})), nil)
	if err != nil {
		log.Fatal(err)
	}
	sender := tracer.Client(client)

	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	hub.Inject(fault.Fault{Kind: fault.DropBeforePublish}) // the first attempt fails
	if err := sender.Send(ctx, &transport.Message{Body: []byte(`{"temperature":21.5}`)}); err != nil {
		log.Fatal(err)
	}
	if err := client.Close(); err != nil {
		log.Fatal(err)
	}
	tracer.Flush() // the spans of all messages have ended
	for _, s := range exporter.GetSpans() {
		fmt.Println(s.Name, s.Status.Code, len(s.Links))
	}
	property := hub.Messages()[0].Properties[0]
	fmt.Println(property.Name, len(property.Value))
	if err := provider.Shutdown(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// attempt Error 0
	// attempt Unset 1
	// send messages/events Unset 0
	// traceparent 55
}
