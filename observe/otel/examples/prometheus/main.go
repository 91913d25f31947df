// Command prometheus is a device whose counters are a page for Prometheus, through OpenTelemetry.
//
// It starts its own hub, which drops the connection every ten seconds, and sends a message each
// second until Ctrl-C.
//
//	go run ./examples/prometheus -listen 127.0.0.1:9464
//	curl http://127.0.0.1:9464/metrics
//
// The file dashboard.json shows the page in Grafana, and alerts.yml has rules for Prometheus.
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
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
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

// page returns a page for Prometheus, and the provider of what it shows.
func page() (http.Handler, *metric.MeterProvider, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, nil, err
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), metric.NewMeterProvider(metric.WithReader(exporter)), nil
}

// desk is a hub in this process, and its device "dev-1" with a client and an outbox in files.
type desk struct {
	hub    *testbroker.Hub
	client *device.Client
	queue  *outbox.Queue
}

// open opens the desk, and makes the provider observe it. The attribute makes a series for each
// device; leave it out to add the clients of a process up.
func open(p *metric.MeterProvider, folder string) (d *desk, err error) {
	d = &desk{}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	attrs := []attribute.KeyValue{otelmetrics.DeviceID("dev-1")}
	if d.hub, err = testbroker.New(nil); err != nil {
		return d, err
	}
	dev, err := d.hub.AddDevice("dev-1")
	if err != nil {
		return d, err
	}
	creds, err := device.ParseConnectionString(dev.ConnectionString())
	if err != nil {
		return d, err
	}
	network := netopt.Options{Plaintext: true, Dial: d.hub.Dial(testbroker.PortAMQP)}
	observed, err := otelmetrics.Transport(p, attrs, amqp.New(&amqp.Options{Network: network}))
	if err != nil {
		return d, err
	}
	if d.client, err = device.New(creds, observed, nil); err != nil {
		return d, err
	}
	if d.queue, err = outbox.Open(folder, nil); err != nil {
		return d, err
	}
	if _, err = otelmetrics.Register(p, attrs, d.client); err != nil {
		return d, err
	}
	_, err = otelmetrics.RegisterOutbox(p, attrs, d.queue)
	return d, err
}

func (d *desk) close() error {
	var errs []error
	if d.queue != nil {
		errs = append(errs, d.queue.Close())
	}
	if d.client != nil {
		errs = append(errs, d.client.Close())
	}
	if d.hub != nil {
		errs = append(errs, d.hub.Close())
	}
	return errors.Join(errs...)
}

func run(ctx context.Context, listen string) (err error) {
	folder, err := os.MkdirTemp("", "outbox")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	handler, provider, err := page()
	if err != nil {
		return err
	}
	d, err := open(provider, folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(), provider.Shutdown(context.Background())) }()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", handler)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with server.Close
	fmt.Printf("http://%s/metrics\n", listener.Addr())

	err = send(ctx, d)
	closed := server.Close()
	<-served
	return errors.Join(err, closed)
}

// send sends a message each second until ctx ends, and drops each tenth connection.
func send(ctx context.Context, d *desk) error {
	if err := d.client.Start(); err != nil {
		return err
	}
	handed := make(chan error, 1)
	go func() { handed <- d.queue.Run(ctx, d.client) }() // ends with ctx
	defer func() { <-handed }()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for n := 1; ; n++ {
		if err := d.queue.Put(ctx, &transport.Message{Body: fmt.Appendf(nil, `{"n":%d}`, n)}); err != nil {
			return ignoreEnd(ctx, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
		}
		if n%10 == 0 {
			d.hub.Drop("dev-1")
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
