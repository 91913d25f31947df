// Command provisioning measures registrations with a provisioning service in another process, over
// each protocol with TLS on loopback, in turns: requests, round trips, bytes and time.
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

	"github.com/hubline-iot/hubline/bench"
)

func main() {
	bench.Child()
	rounds := flag.Int("rounds", 101, "rounds, in each of which each protocol has a turn")
	distance := flag.Duration("distance", 50*time.Millisecond, "round-trip time of the distant service")
	distant := flag.Int("distant", 9, "rounds with the distant service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, max(*rounds, 1), max(*distant, 1), *distance); err != nil {
		fmt.Fprintln(os.Stderr, "provisioning:", err)
		os.Exit(1)
	}
}

// figures are the values of a protocol, one per round.
type figures struct {
	requests, sent, received int
	near, far                []time.Duration
}

func run(ctx context.Context, rounds, distant int, distance time.Duration) error {
	service, err := bench.StartProvisioningPeer(ctx)
	if err != nil {
		return err
	}
	defer service.Close()
	all := make([]figures, len(bench.Registrars))
	const warm = 5
	for round := range warm + rounds + distant {
		for i := range all {
			roundTrip := time.Duration(0)
			if round >= warm+rounds {
				roundTrip = distance
			}
			r, err := service.Register(ctx, i, fmt.Sprintf("dev-%d-%d", i, round), roundTrip)
			f := &all[i]
			switch {
			case err != nil:
				return fmt.Errorf("%s: %w", bench.Registrars[i].Name, err)
			case round < warm:
			case roundTrip == 0:
				f.requests, f.sent, f.received = r.Requests, int(r.Sent), int(r.Received)
				f.near = append(f.near, r.Took)
			default:
				f.far = append(f.far, r.Took)
			}
		}
	}
	fmt.Printf("%s, %d CPUs, TLS 1.3, %d rounds, and %d with a round trip of %v\n\n", runtime.Version(), runtime.NumCPU(),
		rounds, distant, distance)
	fmt.Printf("| protocol | requests | round trips | bytes sent | received | time (median) | middle half | at a round "+
		"trip "+
		"of %v |\n|--|--|--|--|--|--|--|--|\n", distance)
	for i, f := range all {
		near, far := quantile(f.near, 0.5), slices.Min(f.far) // other work only adds to a time
		trips := math.Round(float64(far-slices.Min(f.near)) / float64(distance))
		fmt.Printf("| %s | %d | %.0f | %d | %d | %s | %s to %s | %d ms |\n", bench.Registrars[i].Name, f.requests, trips,
			f.sent, f.received, ms(near), ms(quantile(f.near, 0.25)), ms(quantile(f.near, 0.75)), far.Milliseconds())
	}
	return nil
}

func quantile(all []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }
