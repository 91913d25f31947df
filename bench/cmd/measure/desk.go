package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"time"

	"github.com/hubline-iot/hubline/bench"
)

// desk measures a hub with many devices. It fails if a message was lost.
func desk(args []string) error {
	flags := flag.NewFlagSet("desk", flag.ExitOnError)
	var s bench.DeskSettings
	flags.IntVar(&s.Devices, "devices", 10_000, "connected devices")
	flags.IntVar(&s.Senders, "senders", 100, "how many of them send")
	flags.BoolVar(&s.AMQP, "amqp", false, "the senders are connected over AMQP, the others over MQTT")
	flags.IntVar(&s.Keep, "keep", 100_000, "messages that the hub keeps")
	flags.IntVar(&s.Body, "body", 100, "bytes of a message")
	flags.BoolVar(&s.Secure, "tls", false, "over TLS")
	flags.DurationVar(&s.For, "for", 20*time.Second, "how long they send")
	flags.IntVar(&s.Rate, "rate", 0, "messages a second of all senders; 0 = as fast as the hub acknowledges")
	flags.StringVar(&s.Profile, "profile", "", "a directory for CPU profiles of the three processes")
	_ = flags.Parse(args) // exits on an error
	if s.Senders > s.Devices {
		return fmt.Errorf("-senders %d is more than -devices %d", s.Senders, s.Devices)
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.For+10*time.Minute)
	defer cancel()
	r, err := bench.Desk(ctx, s)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d devices, TLS %v: connected in %.1f s; the hub has %.2f goroutines and %.1f KB for each\n",
		runtime.Version(), r.Devices, r.Secure, r.Connect.Seconds(), r.Goroutines, r.Anon)
	fmt.Printf("%d senders, %d B: %d messages in %.1f s, %.0f a second; %d stored, %d read, the last %v after its "+
		"acknowledgement, %.0f a second over all; then the hub has %.0f MB\n", r.Senders, r.Body, r.Acknowledged,
		r.Sent.Seconds(), float64(r.Acknowledged)/r.Sent.Seconds(), r.Stored, r.Read, r.Lag.Round(time.Millisecond),
		float64(r.Read)/(r.Sent+r.Lag).Seconds(), r.Hub/1024)
	each := func(cpu time.Duration) float64 { return float64(cpu.Microseconds()) / float64(max(r.Acknowledged, 1)) }
	fmt.Printf("µs of CPU time for each message: devices %.2f, hub %.2f, reader %.2f\n", each(r.DevicesCPU),
		each(r.HubCPU), each(r.ReaderCPU))
	return r.Over()
}
