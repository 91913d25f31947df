package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"time"

	"github.com/hubline-iot/hubline/bench"
)

// soak runs devices at a hub that disturbs them, and prints the memory of both every minute.
func soak(args []string) error {
	flags := flag.NewFlagSet("soak", flag.ExitOnError)
	var s bench.SoakSettings
	flags.IntVar(&s.Devices, "devices", 200, "devices")
	flags.DurationVar(&s.Every, "every", time.Second, "how often each sends a message")
	flags.IntVar(&s.Body, "body", 100, "bytes of a message")
	flags.IntVar(&s.Keep, "keep", 50_000, "messages that the hub keeps")
	flags.DurationVar(&s.Fault, "fault", 2*time.Second, "how often the hub begins a fault")
	flags.DurationVar(&s.Measure, "measure", time.Minute, "how often the memory is measured")
	flags.DurationVar(&s.For, "for", time.Hour, "how long")
	flags.Uint64Var(&s.Seed, "seed", uint64(time.Now().UnixNano()), "of the faults")
	_ = flags.Parse(args) // exits on an error
	ctx, cancel := context.WithTimeout(context.Background(), s.For+10*time.Minute)
	defer cancel()
	fmt.Printf("%s, seed %d: %d devices, a message every %v each, a fault every %v, the hub keeps %d messages\n",
		runtime.Version(), s.Seed, s.Devices, s.Every, s.Fault, s.Keep)
	r, err := bench.Soak(ctx, s, func(l bench.SoakLevel) {
		fmt.Printf("%6s: hub %.1f MB and %d goroutines, devices and reader %.1f MB and %d; %d acknowledged\n",
			l.At.Round(time.Second), l.Hub/1024, l.HubGoroutines, l.Devices/1024, l.DeviceGoroutines, l.Acknowledged)
	})
	if err != nil {
		return err
	}
	fmt.Printf("%d acknowledged, %d failed; %d read, %d of them again, %d lost; %d connections; faults: %v\n",
		r.Acknowledged, r.Failed, r.Read, r.Doubled, r.Lost, r.Connections, r.Faults)
	return r.Over()
}
