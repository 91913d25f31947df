// Command telemetry sends numbered readings from a device to a hub, and proves at the end that none
// was lost.
//
// Without a connection string it starts its own hub, which runs a schedule of faults while the
// device sends. The exit status is 0 only if every reading arrived unchanged and, in a run as long
// as the schedule, every fault happened.
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
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/examples/internal/setup"
	"github.com/hubline-iot/hubline/retrypolicy"
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
	if s.rate <= 0 || s.rate > 10_000 || s.count < 0 {
		return setup.Usage("flags -rate and -count: give a rate up to 10000 a second and a count of 0 or more")
	}
	if s.sabotage && s.to.Connect != "" {
		return setup.Usage("flag -sabotage: only the in-process hub can be sabotaged; leave the connection string out")
	}
	if s.count == 0 {
		s.count = max(1, int(s.rate*scheduleTime.Seconds()))
	}

	// A device program has only these few lines; the rest is the hub with its faults, and the ledger.
	own, err := setup.NewDevice(ctx, s.transport, s.to)
	if err != nil {
		return err
	}
	defer own.Close()
	options := &device.Options{RetryPolicy: policy, OnStatus: func(s device.Status) { say("device     %v", s) }}
	if own.Hub != nil { // shorter time-outs, so that the schedule fits into twenty seconds
		options.AckTimeout, options.DialTimeout = 1200*time.Millisecond, 1200*time.Millisecond
		options.StableTime, options.ReconnectSpread = 300*time.Millisecond, -1 // this device is alone
	}
	client, err := device.New(own.Creds, own.Transport, options)
	if err != nil {
		return err
	}
	defer client.Close()
	say("device %s connects to %s, sends %d readings, %g a second, retry policy %s, transport %s", own.Creds.DeviceID,
		own.Creds.Host, s.count, s.rate, s.policy, s.transport)
	if err := client.Open(ctx); err != nil {
		return err
	}

	faults := startFaults(own, s)
	readings := newReadings(s.count)
	sendErr := readings.send(ctx, client, s.rate)
	faults.stop()

	flushCtx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	flushErr := client.Flush(flushCtx)
	stats := client.Stats()
	closeErr := client.Close()
	switch {
	case sendErr == nil:
		sendErr = faults.missing()
	case !errors.Is(sendErr, context.Canceled):
		flushErr = nil // has the same cause
	default:
		sendErr = nil
		if flushErr == nil {
			say("interrupted: what was accepted was flushed")
		}
	}
	return errors.Join(sendErr, flushErr, closeErr, readings.ledger(stats, own.Hub))
}

var began = time.Now()

// say prints one line, with the seconds since the start.
func say(format string, args ...any) {
	fmt.Printf("%6.2fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
