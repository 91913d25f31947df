package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"time"
)

// registrations measures registrations with a provisioning service in another process, over each
// protocol with TLS on loopback, in turns: requests, round trips, bytes and time.
func registrations(args []string) error {
	flags := flag.NewFlagSet("provisioning", flag.ExitOnError)
	rounds := flags.Int("rounds", 101, "rounds, in each of which each protocol has a turn")
	distance := flags.Duration("distance", 50*time.Millisecond, "round-trip time of the distant service")
	distant := flags.Int("distant", 9, "rounds with the distant service")
	node := flags.String("node", "", "folder interop/node, after \"npm ci\" there: measures the official client too")
	_ = flags.Parse(args) // exits on an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return register(ctx, max(*rounds, 1), max(*distant, 1), *distance, *node)
}

// registrar has the values of a client over a protocol, one per round.
type registrar struct {
	name            string
	rounds, distant int
	register        func(ctx context.Context, device string, roundTrip time.Duration) (RegistrationReport,
		error)
	requests, sent, received int
	near, far                []time.Duration
}

func register(ctx context.Context, rounds, distant int, distance time.Duration, node string) error {
	service, err := StartProvisioningPeer(ctx)
	if err != nil {
		return err
	}
	defer service.Close()
	var all []*registrar
	for i, r := range Registrars {
		all = append(all, &registrar{name: r.Name, rounds: rounds, distant: distant,
			register: func(ctx context.Context, device string, roundTrip time.Duration) (RegistrationReport, error) {
				return service.Register(ctx, i, device, roundTrip)
			}})
	}
	if node != "" {
		client, err := service.StartNode(ctx, node)
		if err != nil {
			return err
		}
		defer client.Close()
		for i, r := range NodeRegistrars { // over AMQP it waits 2 s before a poll
			all = append(all, &registrar{name: r.Name, rounds: min(rounds, 9), distant: min(distant, 5),
				register: func(ctx context.Context, device string, roundTrip time.Duration) (RegistrationReport, error) {
					return client.Register(ctx, i, device, roundTrip)
				}})
		}
	}
	for round := range warm + max(rounds, distant) {
		for i, f := range all {
			device := fmt.Sprintf("dev-%d-%d", i, round)
			if err := f.measure(ctx, device, round-warm, distance); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	fmt.Printf("%s, %d CPUs, TLS 1.3, %d rounds, and %d with a round trip of %v\n\n", runtime.Version(), runtime.NumCPU(),
		rounds, distant, distance)
	fmt.Printf("| protocol | requests | round trips | bytes sent | received | time (median) | middle half | "+
		"least at a round trip of %v |\n|--|--|--|--|--|--|--|--|\n", distance)
	for _, f := range all {
		near, far := quantile(f.near, 0.5), slices.Min(f.far) // other work only adds to a time
		trips := math.Round(float64(far-slices.Min(f.near)) / float64(distance))
		fmt.Printf("| %s | %d | %.0f | %d | %d | %s | %s to %s | %d ms |\n", f.name, f.requests, trips, f.sent, f.received,
			ms(near), ms(quantile(f.near, 0.25)), ms(quantile(f.near, 0.75)), far.Milliseconds())
	}
	return nil
}

// warm is the number of rounds that do not count, and are numbered below 0.
const warm = 1

// measure registers near and far, in the rounds that the client takes part in.
func (f *registrar) measure(ctx context.Context, device string, round int, distance time.Duration) error {
	if round < f.rounds {
		r, err := f.register(ctx, device, 0)
		if err != nil {
			return err
		}
		f.requests, f.sent, f.received = r.Requests, int(r.Sent), int(r.Received)
		if round >= 0 {
			f.near = append(f.near, r.Took)
		}
	}
	if round >= 0 && round < f.distant {
		r, err := f.register(ctx, device+"-far", distance)
		if err != nil {
			return err
		}
		f.far = append(f.far, r.Took)
	}
	return nil
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
