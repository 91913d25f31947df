package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"time"
)

// clientCosts measures the cost of a client: idle, in an outage, or as one of many on a connection.
// args begin with which.
func clientCosts(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	var measure func() (interface{ Over() error }, error)
	switch args[0] {
	case "idle":
		var s IdleSettings
		flags.IntVar(&s.Clients, "clients", 1000, "clients in one process")
		flags.BoolVar(&s.Secure, "tls", false, "over TLS")
		flags.BoolVar(&s.Outage, "outage", false, "after an outage of 3 s, in which all clients dial at once")
		flags.BoolVar(&s.Sent, "sent", false, "each client has sent a message before")
		flags.StringVar(&s.Transport, "over", "mqtt", "mqtt, amqp, or paho for MQTT on that client")
		flags.BoolVar(&s.Raw, "raw", false, "clients of the raw library instead, for comparison")
		measure = func() (interface{ Over() error }, error) {
			r, err := Idle(ctx, s)
			if err == nil {
				fmt.Printf("%s: %d idle clients, %s, TLS %v, raw %v, sent %v, outage %v: per client %.2f goroutines, "+
					"%.1f KB anonymous memory (%.1f KB resident; heap %.1f KB, stacks %.1f KB)\n",
					runtime.Version(), r.Clients, r.Transport, r.Secure, r.Raw, r.Sent, r.Outage, r.Goroutines, r.Anon, r.RSS,
					r.Heap, r.Stacks)
			}
			return r, err
		}
	case "outage":
		var s OutageSettings
		flags.DurationVar(&s.Before, "before", 15*time.Second, "time before the absence")
		flags.DurationVar(&s.Absent, "absent", 30*time.Second, "duration of the absence")
		flags.DurationVar(&s.After, "after", 15*time.Second, "time after the absence")
		flags.DurationVar(&s.Every, "every", 100*time.Millisecond, "a message each")
		flags.BoolVar(&s.Secure, "tls", true, "over TLS")
		measure = func() (interface{ Over() error }, error) {
			r, err := Outage(ctx, s)
			if err == nil {
				fmt.Printf("%s: hub absent for %v of %.1f s, TLS %v: %v CPU time, %v of it for ticks; %d messages, %d lost, %d "+
					"duplicates, up to %d waited; %d attempts, %d connections\n",
					runtime.Version(), s.Absent, r.Took.Seconds(), s.Secure, r.CPU.Round(time.Millisecond),
					r.Ticks.Round(time.Millisecond), r.Messages, r.Lost, r.Duplicates, r.HighWater, r.Attempts, r.Connections)
			}
			return r, err
		}
	case "fleet":
		var s FleetSettings
		flags.IntVar(&s.Devices, "devices", 1000, "devices on one connection of AMQP")
		flags.BoolVar(&s.Messages, "c2d", false, "each receives cloud-to-device messages, too")
		flags.BoolVar(&s.Raw, "raw", false, "sessions and links of the raw library instead, for comparison")
		measure = func() (interface{ Over() error }, error) {
			r, err := Fleet(ctx, s)
			if err == nil {
				fmt.Printf("%s: %d devices on one connection, cloud-to-device %v, raw %v: per device %.2f goroutines, %.1f KB "+
					"heap, "+
					"%.1f KB stacks, %.1f KB anonymous memory",
					runtime.Version(), r.Devices, r.Messages, r.Raw, r.Goroutines, r.Heap, r.Stacks, r.Anon)
				if !r.Raw {
					fmt.Printf("; connection cut: all connected after %v, each message acknowledged after %v",
						r.Back.Round(time.Millisecond), r.Served.Round(time.Millisecond))
				}
				fmt.Println()
				err = r.Late()
			}
			return r, err
		}
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	r, err := measure()
	if err != nil {
		return err
	}
	return r.Over()
}
