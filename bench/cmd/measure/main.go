// Command measure measures one thing, prints it and exits with status 1 if it is over its budget:
//
//	idle, outage, fleet         what a client costs: idle, while the hub is absent, and as one of many
//	                            on a connection
//	desk                        a hub with many devices: connecting, a connection's cost to the hub,
//	                            and messages a second while a reader reads all of them; hub, devices
//	                            and reader are three processes, connected by sockets
//	https                       single requests against batches
//	provisioning                registrations over each protocol
//	retries                     decisions and runs of retry libraries
//	outbox                      stores of messages in files
//	delays                      nothing: draws the delays of retry policies into ../docs
//	plots                       how throughput and costs grow, into pictures in ../docs
//
// For example:
//
//	go run ./cmd/measure idle -clients 1000 -tls
//	go run ./cmd/measure fleet -devices 1000 -c2d
//	go run ./cmd/measure desk -devices 10000 -senders 10000 -tls
//
// Each measurement lists its flags with -help.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/bench"
)

func main() {
	bench.Child()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	measurements := map[string]func(args []string) error{
		"idle": client, "outage": client, "fleet": client, "desk": named(desk),
		"https": named(https), "provisioning": named(provisioning), "retries": named(retries),
		"plots": named(plots), "delays": named(delays), "outbox": named(stores),
	}
	if len(args) > 0 && measurements[args[0]] != nil {
		return measurements[args[0]](args)
	}
	return fmt.Errorf("give a measurement: %s", strings.Join(slices.Sorted(maps.Keys(measurements)), ", "))
}

// named is for a measurement that does not read its name.
func named(f func(args []string) error) func(args []string) error {
	return func(args []string) error { return f(args[1:]) }
}

// quantile returns the value below which the fraction q of all lies.
func quantile[T cmp.Ordered](all []T, q float64) T {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}
