// Command bench compares Hubline with the raw library below it (the same messages, the same window,
// the same peer, in turns in one run), or measures one thing. It prints the results, and exits with
// status 1 if they are over their budget:
//
//	mqtt, mqtt5, amqp           senders over a protocol: rates, allocations and CPU time beside the raw
//	                            library, against the same peers; with -write into the page in results
//	                            and the picture in ../docs
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
//	go run . mqtt -quick
//	go run . mqtt -peers bare -windows 128 -sizes 100 -tls off
//	go run . idle -clients 1000 -tls
//	go run . desk -devices 10000 -senders 10000 -tls
//
// Each measurement lists its flags with -help. The tests check the budgets.
package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	Child()
	if err := measurement(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measurement(args []string) error {
	measurements := map[string]func(args []string) error{
		"idle": clientCosts, "outage": clientCosts, "fleet": clientCosts, "desk": named(deskLoad),
		"https": named(batchSpeed), "provisioning": named(registrations), "retries": named(retryCosts),
		"plots": named(drawGrowth), "outbox": named(storeSpeed), "delays": named(drawDelays),
	}
	for _, s := range suites {
		measurements[s.name] = named(s.compare)
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
