// Command prometheus is a device whose counters are a page for Prometheus, through OpenTelemetry.
//
// It starts its own hub, which drops the connection every ten seconds, and sends a message each
// second until Ctrl-C.
//
//	go run ./examples/prometheus -listen 127.0.0.1:9464
//	curl http://127.0.0.1:9464/metrics
//
// The file dashboard.json shows the page in Grafana.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/otelmetrics"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9464", "`address` of the page")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *listen); err != nil {
		log.Fatal(err)
	}
}

// page returns the page with the counters of one device. The attribute makes a series for each
// device; leave it out to add the clients of a process up.
func page(id string, client otelmetrics.Client) (handler http.Handler, end func() error, err error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	provider := metric.NewMeterProvider(metric.WithReader(exporter))
	unregister, err := otelmetrics.Register(provider, []attribute.KeyValue{otelmetrics.DeviceID(id)}, client)
	shutdown := func() error { return provider.Shutdown(context.Background()) }
	if err != nil {
		return nil, nil, errors.Join(err, shutdown())
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), func() error {
		return errors.Join(unregister(), shutdown())
	}, nil
}

// connect starts a hub in this process and a client of its device "dev-1".
func connect() (*testbroker.Hub, *device.Client, error) {
	hub, err := testbroker.New(nil)
	if err != nil {
		return nil, nil, err
	}
	client, err := newClient(hub)
	if err != nil {
		return nil, nil, errors.Join(err, hub.Close())
	}
	return hub, client, nil
}

func newClient(hub *testbroker.Hub) (*device.Client, error) {
	dev, err := hub.AddDevice("dev-1")
	if err != nil {
		return nil, err
	}
	creds, err := device.ParseConnectionString(dev.ConnectionString())
	if err != nil {
		return nil, err
	}
	network := netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}
	return device.New(creds, mqtt.New(&mqtt.Options{Network: network}), nil)
}

func run(ctx context.Context, listen string) error {
	hub, client, err := connect()
	if err != nil {
		return err
	}
	defer hub.Close()
	defer client.Close()
	handler, end, err := page("dev-1", client)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, end())
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with server.Close
	fmt.Printf("http://%s/metrics\n", listener.Addr())

	err = send(ctx, hub, client)
	closed := server.Close()
	<-served
	return errors.Join(err, closed, end())
}

// send sends a message each second until ctx ends, and drops each tenth connection.
func send(ctx context.Context, hub *testbroker.Hub, client *device.Client) error {
	if err := client.Start(); err != nil {
		return err
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for n := 1; ; n++ {
		if err := client.Enqueue(ctx, &transport.Message{Body: fmt.Appendf(nil, `{"n":%d}`, n)}, nil); err != nil {
			return ignoreEnd(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
		}
		if n%10 == 0 {
			hub.Drop("dev-1")
		}
	}
}

// ignoreEnd returns nil for an error after the end of ctx, which is how the program ends.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
