package otelmetrics_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/otelmetrics"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func ExampleRegister() {
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

	reader := sdk.NewManualReader() // in a program: sdk.NewPeriodicReader with its exporter
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	unregister, err := otelmetrics.Register(provider, []attribute.KeyValue{otelmetrics.DeviceID("dev-1")}, client)
	if err != nil {
		log.Fatal(err)
	}
	defer unregister()

	ctx := context.Background()
	if err := client.Open(ctx); err != nil {
		log.Fatal(err)
	}
	if err := client.Send(ctx, &transport.Message{Body: []byte(`{"temperature":21.5}`)}); err != nil {
		log.Fatal(err)
	}

	var read metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &read); err != nil {
		log.Fatal(err)
	}
	for _, m := range read.ScopeMetrics[0].Metrics {
		if m.Name == "hubline.client.messages.acknowledged" || m.Name == "hubline.client.connection.successes" {
			point := m.Data.(metricdata.Sum[int64]).DataPoints[0]
			fmt.Println(m.Name, point.Value, m.Unit, point.Attributes.Encoded(attribute.DefaultEncoder()))
		}
	}
	// Output:
	// hubline.client.messages.acknowledged 1 {message} hubline.device.id=dev-1
	// hubline.client.connection.successes 1 {connection} hubline.device.id=dev-1
}
