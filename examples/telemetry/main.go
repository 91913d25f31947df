// Command telemetry sends numbered readings from a device to a hub, and proves at the end that none
// was lost.
//
// Without a connection string it starts its own hub, which runs a schedule of faults while the
// device sends. The schedule contains every fault that the hub supports. The exit status is 0 only
// if every reading arrived unchanged and every fault happened.
//
//	go run ./examples/telemetry              twenty seconds of faults, then a ledger
//	go run ./examples/telemetry -sabotage    the hub forgets a reading: the ledger finds it, status 1
//	go run ./examples/telemetry -policy none the first fault ends it: NoRetry
//	go run ./examples/telemetry -transport amqp         over AMQP 1.0, with faults of its own; amqp-ws: over WebSocket
//	go run ./examples/telemetry -transport http         the same over HTTPS, with faults of its own
//	HUBLINE_CONNECTION_STRING=... go run ./examples/telemetry    to a real hub, without faults; -hub $HUB: to a testhub
package main

import (
	"context"
	"errors"
	"flag"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// settings are the flags.
type settings struct {
	to        setup.Target
	transport string
	rate      float64
	count     int
	policy    string
	sabotage  bool
}

func main() {
	var s settings
	s.to.Flags()
	flag.StringVar(&s.transport, "transport", "mqtt", "what carries the readings: mqtt, amqp, amqp-ws (over "+
		"WebSocket) or http (over TLS)")
	flag.Float64Var(&s.rate, "rate", 100, "readings per second")
	flag.IntVar(&s.count, "count", 0, "readings in all; 0: twenty seconds of them")
	flag.StringVar(&s.policy, "policy", "azure", "retry policy: azure (exponential back-off with jitter) or none")
	flag.BoolVar(&s.sabotage, "sabotage", false, "make the in-process hub forget a reading that it acknowledged")
	setup.Main(0, &s.to, func(ctx context.Context) error { return run(ctx, s) })
}

// run sends all readings and prints the ledger. It returns an error if the ledger shows a fault.
func run(ctx context.Context, s settings) error {
	policies := map[string]retrypolicy.Policy{"azure": retrypolicy.ExponentialBackoffWithJitter{},
		"none": retrypolicy.NoRetry{}}
	policy, ok := policies[s.policy]
	if !ok {
		return setup.Usage("flag -policy: %q is not a policy; give azure or none", s.policy)
	}
	ports, err := setup.PortsOf(s.transport)
	if err != nil {
		return err
	}
	if s.rate <= 0 || s.rate > 10_000 || s.count < 0 {
		return setup.Usage("flags -rate and -count: give a rate up to 10000 a second and a count of 0 or more")
	}
	if s.sabotage && s.to.Connect != "" {
		return setup.Usage("flag -sabotage: only the in-process hub can be sabotaged; leave the connection string out")
	}
	if s.count == 0 {
		s.count = max(1, int(s.rate*scheduleTime.Seconds()))
	}
	out := newPrinter()
	options := &device.Options{RetryPolicy: policy, OnStatus: out.status}

	// A device program has only these few lines; the rest is the hub with its faults, and the ledger.
	var hub *faultyHub
	var network netopt.Options
	connect := s.to.Connect
	if connect == "" {
		if hub, err = newFaultyHub(out, ports); err != nil {
			return err
		}
		defer hub.close()
		connect, network = hub.connect()
		hub.shortenTimes(options)
	} else if network, err = s.to.Find(ctx, ports.Testhub); err != nil {
		return err
	}
	creds, err := device.ParseConnectionString(connect)
	if err != nil {
		return err
	}
	client, err := device.New(creds, newTransport(s.transport, creds, network), options)
	if err != nil {
		return err
	}
	defer client.Close()

	out.line("device %s connects to %s, sends %d readings, %g a second, retry policy %s, transport %s", creds.DeviceID,
		creds.Host, s.count, s.rate, s.policy, s.transport)
	if err := client.Open(ctx); err != nil {
		return err
	}
	if hub != nil {
		hub.start(s.sabotage)
	}
	readings := newReadings(s.count)
	sendErr := readings.send(ctx, client, s.rate, out)
	if hub != nil {
		hub.finish()
	}

	flushCtx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	flushErr := client.Flush(flushCtx)
	stats := client.Stats()
	closeErr := client.Close()
	readings.collect()
	interrupted := errors.Is(sendErr, context.Canceled)
	if interrupted {
		out.line("interrupted: what was accepted was flushed")
		sendErr = nil
	}
	out.settle()
	ledgerErr := readings.ledger(stats, hub, interrupted)
	if sendErr != nil {
		flushErr = nil // has the same cause
	}
	return errors.Join(sendErr, flushErr, closeErr, ledgerErr)
}

// newTransport selects the transport of the readings. A program that names one transport links no
// other.
func newTransport(name string, creds *transport.Credentials, network netopt.Options) transport.Transport {
	switch name {
	case "amqp":
		return amqp.New(&amqp.Options{Network: network})
	case "amqp-ws":
		network.Tunnel = websocket.AMQP(nil)
		return amqp.New(&amqp.Options{Network: network})
	case "http":
		return http.New(&http.Options{Network: network})
	default:
		return mqtt.New(&mqtt.Options{Network: network})
	}
}
